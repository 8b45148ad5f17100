"""One file per architecture, which states everything of it; this is the list."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module

from samebits.models.architecture import Architecture

# name in GGUF files -> the architecture's module here, and its record there
DENSE = {
    "llama": "llama:LLAMA",
    "mistral": "mistral:MISTRAL",
    "qwen2": "qwen2:QWEN2",
    "qwen3": "qwen3:QWEN3",
    "gemma2": "gemma2:GEMMA2",
    "gemma3": "gemma3:GEMMA3",
    "phi3": "phi3:PHI3",
}
EXPERTS = {
    "mixtral": "mixtral:MIXTRAL",
    "qwen3moe": "qwen3moe:QWEN3MOE",
    "granitemoe": "granitemoe:GRANITEMOE",
    "glm4moe": "glm4moe:GLM4MOE",
    "gpt-oss": "gpt_oss:GPT_OSS",
}
LATENT = {"deepseek2": "deepseek2:DEEPSEEK2", "deepseek3": "deepseek2:DEEPSEEK3"}
HYBRID = {
    "qwen3next": "qwen3next:QWEN3NEXT",
    "qwen35": "qwen35:QWEN35",
    "qwen35moe": "qwen35:QWEN35MOE",
    "mamba2": "mamba2:MAMBA2",
    "lfm2": "lfm2:LFM2",
    "granitehybrid": "granitehybrid:GRANITEHYBRID",
    "falcon-h1": "falcon_h1:FALCON_H1",
    "nemotron_h_moe": "nemotron_h:NEMOTRON_H_MOE",
    "nemotron_h": "nemotron_h:NEMOTRON_H",
}


class _Architectures(Mapping[str, Architecture]):
    """All of them by name; each is imported when it is looked up, since a model needs one."""

    def __init__(self) -> None:
        self._where = DENSE | EXPERTS | LATENT | HYBRID

    def __getitem__(self, name: str) -> Architecture:
        module, _, record = self._where[name].partition(":")
        found: Architecture = getattr(import_module(f"samebits.models.{module}"), record)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._where)

    def __len__(self) -> int:
        return len(self._where)


ARCHITECTURES: Mapping[str, Architecture] = _Architectures()
