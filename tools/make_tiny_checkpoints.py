"""Makes tests/models/data: random tiny checkpoints of every architecture and the logits transformers gives them.

    pip install torch transformers safetensors gguf numpy
    python tools/make_tiny_checkpoints.py tests/models/data [NAME ...]

Each folder: config.json and model.safetensors as `save_pretrained` writes them, expected.npz (token_ids, float32
logits of every position by eager attention, `rounded`: see `rounded_logits`, versions), and for some the same
weights as a GGUF file laid out as llama.cpp's converter lays it out.

Weights are drawn once and shipped: torch's normal draws differ in their last bits from one kind of CPU to another, and
so do its logits. A folder that has weights keeps them, and keeps its logits where new ones differ by rounding alone.
All the rest is made from them anew, and comes out byte for byte. Delete a folder's model.safetensors to draw again.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import tiny_hybrids
import tiny_hybrids_gguf
import tiny_latent
import tiny_mixtures
import tiny_mixtures_gguf
import torch
import transformers

NUM_TOKENS = 40
WINDOW = 9  # smaller than the prompt, and neither a page nor a divisor of one
SIZES = dict(vocab_size=96, hidden_size=32, intermediate_size=48, num_hidden_layers=2)
SIZES |= dict(num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256, initializer_range=0.3)
SIZES |= dict(bos_token_id=None, eos_token_id=None, pad_token_id=None)
LLAMA31 = dict(rope_type="llama3", rope_theta=500.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0)
LLAMA31 |= dict(original_max_position_embeddings=64)  # wavelengths 6 to 1100: kept, on the ramp, and divided
SHORT, LONG = [1.0, 1.1, 1.3, 1.7], [1.0, 1.9, 3.1, 6.3]  # of the four frequencies of a head of 8
YARN = dict(rope_type="yarn", rope_theta=500.0, factor=4.0, original_max_position_embeddings=64)
YARN |= dict(beta_fast=8.0, beta_slow=1.0)  # so that four frequencies are kept, on the ramp, and divided
CONFIGS = {"Gemma3": "Gemma3TextConfig", "Qwen3_5": "Qwen3_5TextConfig"}  # where it is not the family's name
CONFIGS |= {"Qwen3_5Moe": "Qwen3_5MoeTextConfig"}


@dataclass(frozen=True)
class Recipe:
    """What one folder holds. `family` and "Config" or "ForCausalLM" are transformers' classes, but for a config whose
    class has another name. `gguf_types`: a GGUF file with matrices of each of these types. `sizes`: what `config`
    changes."""

    family: str
    config: dict[str, Any] = field(default_factory=dict)
    dtype: torch.dtype = torch.float32
    gguf_types: tuple[str, ...] = ()
    sizes: dict[str, Any] = field(default_factory=lambda: SIZES)
    num_tokens: int = NUM_TOKENS

    @property
    def is_hybrid(self) -> bool:
        return self.family in tiny_hybrids_gguf.ARCHS


RECIPES = {
    "llama": Recipe("Llama", dict(head_dim=12), gguf_types=("f32",)),
    "llama31": Recipe(
        "Llama",
        dict(rope_parameters=LLAMA31, tie_word_embeddings=True, attention_bias=True, head_dim=12, rms_norm_eps=1e-5),
        gguf_types=("f32",),
    ),
    "llama_biases": Recipe("Llama", dict(attention_bias=True, mlp_bias=True, head_dim=12), gguf_types=("f32",)),
    "mistral": Recipe("Mistral", dict(sliding_window=WINDOW, head_dim=12, num_hidden_layers=3)),
    "qwen2": Recipe(
        "Qwen2", dict(rope_parameters=dict(rope_type="linear", rope_theta=1e4, factor=2.0)), gguf_types=("f32", "f16")
    ),
    "qwen3": Recipe(
        "Qwen3",
        dict(head_dim=12, use_sliding_window=True, sliding_window=WINDOW, max_window_layers=1, num_hidden_layers=3),
    ),
    "qwen3_bf16": Recipe("Qwen3", dict(head_dim=12, tie_word_embeddings=True), torch.bfloat16),
    "gemma2": Recipe(
        "Gemma2",
        dict(
            num_hidden_layers=4,
            intermediate_size=32,
            head_dim=8,
            query_pre_attn_scalar=32,  # 4 * head_dim, see `folded_scalar`
            sliding_window=WINDOW,
            attn_logit_softcapping=5.0,  # low enough that both caps bend most values
            final_logit_softcapping=8.0,
        ),
        gguf_types=("f32",),
    ),
    "gemma3": Recipe(
        "Gemma3",
        dict(
            num_hidden_layers=4,
            layer_types=["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"],
            intermediate_size=32,
            head_dim=8,
            query_pre_attn_scalar=32,
            sliding_window=WINDOW,
            rope_parameters=dict(
                full_attention=dict(rope_type="linear", rope_theta=1e5, factor=4.0),
                sliding_attention=dict(rope_type="default", rope_theta=100.0),
            ),
        ),
        gguf_types=("f32",),
    ),
    "phi3": Recipe(
        "Phi3",
        dict(
            rope_parameters=dict(rope_type="longrope", rope_theta=500.0, short_factor=SHORT, long_factor=LONG),
            original_max_position_embeddings=32,  # less than the prompt: the long factors hold
        ),
        gguf_types=("f32",),
    ),
    "phi3_short": Recipe(
        "Phi3",
        dict(
            rope_parameters=dict(rope_type="longrope", rope_theta=500.0, short_factor=SHORT, long_factor=LONG),
            original_max_position_embeddings=128,
            sliding_window=WINDOW,
        ),
    ),
    "yarn": Recipe("Qwen2", dict(rope_parameters=YARN), gguf_types=("f32",)),
}
RECIPES |= {
    name: Recipe(
        family,
        tiny_hybrids.CONFIGS[name],
        gguf_types=tiny_hybrids.GGUF_TYPES.get(name, ("f32",)),
        sizes={},
        num_tokens=52,  # three boundaries of 16 and a rest
    )
    for name, family in tiny_hybrids.FAMILIES.items()
}
RECIPES |= {
    name: Recipe(
        family,
        tiny_mixtures.CONFIGS[name],
        gguf_types=tiny_mixtures.GGUF_TYPES.get(name, ("f32",)),
        sizes={},
        num_tokens=52 if name in tiny_mixtures.HYBRIDS else NUM_TOKENS,
    )
    for name, family in tiny_mixtures.FAMILIES.items()
}

RECIPES |= {
    name: Recipe(family, tiny_latent.CONFIGS[name], gguf_types=tiny_latent.GGUF_TYPES[name], sizes=tiny_latent.SIZES)
    for name, family in tiny_latent.FAMILIES.items()
}

# What each folder was drawn with; a new recipe takes the next number, wherever it stands among the others.
SEEDS = dict(llama=1, llama31=2, mistral=3, qwen2=4, qwen3=5, qwen3_bf16=6, gemma2=7, gemma3=8, phi3=9, phi3_short=10)
SEEDS |= dict(yarn=11, qwen3next=12, qwen35=13, mamba2=14, lfm2=15, granitehybrid=16, falcon_h1=17, falcon_h1_norm=18)
SEEDS |= dict(nemotron_h=19, mixtral=20, qwen3moe=21, qwen3moe_mixed=22, granitemoe=23, glm4moe=24, gpt_oss=25)
SEEDS |= dict(qwen3next_moe=26, qwen35moe=27, granitehybrid_moe=28, nemotron_h_moe=29, nemotron_h_latent=30)
SEEDS |= dict(deepseek_dense=30, deepseek2=31, deepseek3=32, llama_biases=33)


def drawn_model(recipe: Recipe, seed: int) -> Any:
    """A model in float32 whose every parameter is random and exact in the recipe's dtype."""
    torch.manual_seed(seed)
    config = getattr(transformers, CONFIGS.get(recipe.family, f"{recipe.family}Config"))(
        **{**recipe.sizes, **recipe.config}
    )
    config._attn_implementation = config._experts_implementation = "eager"
    model = getattr(transformers, f"{recipe.family}ForCausalLM")(config).float().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 1:  # norms and biases start as constants, which would hide their absence
                centre = 1.0 if name.endswith("norm.weight") and not recipe.family.startswith("Gemma") else 0.0
                centre = tiny_hybrids.centre(name, recipe.family) if recipe.is_hybrid else centre
                parameter.copy_(centre + 0.3 * torch.randn_like(parameter))
            is_halved = "f16" in recipe.gguf_types  # so that its f16 file holds the same values
            parameter.copy_(parameter.to(torch.float16 if is_halved else recipe.dtype).float())
    tiny_mixtures.draw(model, recipe.family)
    return model


def shipped_model(recipe: Recipe, folder: Path) -> Any:
    """The model that lies in a folder, in float32."""
    kind = getattr(transformers, f"{recipe.family}ForCausalLM")
    settings = dict(attn_implementation="eager", experts_implementation="eager", dtype=torch.float32)
    return kind.from_pretrained(folder, **settings).eval()


def is_expected(path: Path, arrays: dict[str, np.ndarray]) -> bool:
    """Whether a file holds these arrays, but for rounding, of sums and then of what enters products in 16 bits."""
    if not path.exists():
        return False
    stored = np.load(path)
    return set(stored.files) - {"versions"} == set(arrays) and all(
        np.allclose(stored[name], array, rtol=0, atol=5e-3) for name, array in arrays.items()
    )


def logits_of(model: Any, token_ids: np.ndarray) -> np.ndarray:
    """float32 [tokens, vocabulary]."""
    with torch.no_grad():
        ids = torch.from_numpy(token_ids.astype(np.int64))[None]
        return model(ids, use_cache=False).logits[0].float().numpy()


def rounded_logits(model: Any, token_ids: np.ndarray, dtype: torch.dtype) -> np.ndarray:
    """The logits when what enters a matrix product is rounded to `dtype`, as samebits does for 16-bit weights."""
    linears = [m for m in model.modules() if isinstance(m, torch.nn.Linear)]
    hooks = [m.register_forward_pre_hook(lambda _, args: (args[0].to(dtype).float(),)) for m in linears]
    try:
        return logits_of(model, token_ids)
    finally:
        for hook in hooks:
            hook.remove()


def permuted(rows: np.ndarray, num_heads: int) -> np.ndarray:
    """Rows of Q or K in the order of llama.cpp's `llama` files: rotary pairs side by side."""
    head_dim = len(rows) // num_heads
    order = np.arange(head_dim).reshape(2, -1).T.ravel()  # 0, d/2, 1, d/2 + 1, ...
    return rows[(np.arange(num_heads)[:, None] * head_dim + order).ravel()]


def folded_scalar(config: Any) -> float:
    """What queries are multiplied by, as GGUF has no key for the query scalar and readers take the head size.

    A power of two, so that the folding is exact.
    """
    factor = (config.head_dim / config.query_pre_attn_scalar) ** 0.5
    if np.frexp(factor)[0] != 0.5:
        raise ValueError(f"query_pre_attn_scalar {config.query_pre_attn_scalar}: needs head_dim times a power of 4")
    return factor


def rope_divisors(rope: dict[str, Any], head_dim: int) -> np.ndarray:
    """llama.cpp's tensor rope_freqs.weight for Llama-3.1's scaling, by its converter's formula."""
    frequencies = 1.0 / rope["rope_theta"] ** (np.arange(0, head_dim, 2) / head_dim)
    context, low, high = (rope[k] for k in ("original_max_position_embeddings", "low_freq_factor", "high_freq_factor"))
    smooth = np.clip((context * frequencies / (2 * np.pi) - low) / (high - low), 0, 1)
    return (1 / ((1 - smooth) / rope["factor"] + smooth)).astype(np.float32)


def gguf_tensor(name: str, array: np.ndarray, family: str, config: Any) -> np.ndarray:
    """One tensor of the model as the converter stores it."""
    if family == "Llama" and "q_proj" in name:
        return permuted(array, config.num_attention_heads)
    if family == "Llama" and "k_proj" in name:
        return permuted(array, config.num_key_value_heads)
    if family == "Gemma3" and name.endswith("q_norm.weight"):  # a norm undoes what is folded in before it
        return (array + np.float32(1)) * np.float32(folded_scalar(config))
    if family.startswith("Gemma") and name.endswith("norm.weight"):
        return array + np.float32(1)
    if family == "Gemma2" and "q_proj" in name:
        return array * np.float32(folded_scalar(config))
    return array


def add_scaling(writer: gguf.GGUFWriter, rope: dict[str, Any], head_dim: int, config: Any) -> None:
    """What the converter writes of a rotation for long contexts."""
    if rope["rope_type"] == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rope["factor"])
    if rope["rope_type"] == "llama3":
        writer.add_tensor("rope_freqs.weight", rope_divisors(rope, head_dim))
    if rope["rope_type"] == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        writer.add_rope_scaling_yarn_beta_fast(rope["beta_fast"])
        writer.add_rope_scaling_yarn_beta_slow(rope["beta_slow"])
    if rope["rope_type"] == "longrope":
        original = config.original_max_position_embeddings
        factor = config.max_position_embeddings / original
        writer.add_rope_scaling_orig_ctx_len(original)
        writer.add_rope_scaling_attn_factors(float(np.sqrt(1 + np.log(factor) / np.log(original))))
        for kind in ("short", "long"):
            writer.add_tensor(f"rope_factors_{kind}.weight", np.array(rope[f"{kind}_factor"], np.float32))


def write_gguf(path: Path, model: Any, family: str, matrix_type: str) -> None:
    """The model as a GGUF file without a tokenizer, tensors named by gguf-py's own map."""
    if family in tiny_hybrids_gguf.ARCHS:
        tiny_hybrids_gguf.write_gguf(path, model, family, matrix_type)
        return
    if family in tiny_latent.FAMILIES.values():
        tiny_latent.write_gguf(path, model, matrix_type)
        return
    if family in tiny_mixtures_gguf.ARCHS:
        tiny_mixtures_gguf.write_gguf(path, model, family, matrix_type)
        return
    config, architecture = model.config, family.lower()
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    rope = config.rope_parameters.get("full_attention", config.rope_parameters)
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_vocab_size(config.vocab_size)
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    if family == "Llama":
        writer.add_rope_dimension_count(head_dim)
    if family == "Gemma2":
        writer.add_sliding_window(config.sliding_window)
        writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
    if family == "Gemma3":
        writer.add_sliding_window(config.sliding_window)
        writer.add_uint32("gemma3.attention.sliding_window_pattern", 3)
        writer.add_float32("gemma3.rope.freq_base_swa", config.rope_parameters["sliding_attention"]["rope_theta"])
    add_scaling(writer, rope, head_dim, config)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[architecture.upper()], config.num_hidden_layers)
    for name, parameter in model.named_parameters():  # a tied head is not among them
        array = gguf_tensor(name, parameter.detach().numpy(), family, config)
        stored = array.astype(np.float16) if matrix_type == "f16" and array.ndim == 2 else array
        writer.add_tensor(names.get_name(name, try_suffixes=(".weight", ".bias")), stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def make(name: str, recipe: Recipe, folder: Path) -> None:
    """Writes one folder, from the weights that lie there, or from new ones."""
    model = (
        shipped_model(recipe, folder) if (folder / "model.safetensors").exists() else drawn_model(recipe, SEEDS[name])
    )
    draw = np.random.default_rng(SEEDS[name])
    token_ids = draw.integers(0, SIZES["vocab_size"], recipe.num_tokens).astype(np.int32)
    expected = {"token_ids": token_ids, "logits": logits_of(model, token_ids)}
    half = torch.float16 if "f16" in recipe.gguf_types else recipe.dtype
    if half != torch.float32:
        expected["rounded"] = rounded_logits(model, token_ids, half)
    folder.mkdir(parents=True, exist_ok=True)
    if not is_expected(folder / "expected.npz", expected):
        versions = [f"{m.__name__} {m.__version__}" for m in (torch, transformers, np)]
        np.savez_compressed(folder / "expected.npz", versions=np.array(versions), **expected)
    for matrix_type in recipe.gguf_types:
        write_gguf(folder / f"model-{matrix_type}.gguf", model, recipe.family, matrix_type)
    model.to(recipe.dtype).save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    size = sum(path.stat().st_size for path in folder.iterdir())
    print(f"{name}: {size / 1000:.0f} kB, largest logit {np.abs(expected['logits']).max():.1f}")


def main() -> None:
    data, *names = sys.argv[1:]
    for name in names or RECIPES:
        make(name, RECIPES[name], Path(data) / name)


if __name__ == "__main__":
    main()
