"""What a GGUF file says of a model, from what its config.json says: the keys that llama.cpp's files have."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from samebits.convert.gguf_bytes import I32, boolean, f32, numbers, string, u32
from samebits.core.errors import BadInput
from samebits.models import gemma2, gemma3
from samebits.models.parts.decoder import KEYS, Decoder
from samebits.models.parts.experts import mixture_of
from samebits.models.parts.keys import Key
from samebits.models.parts.recurrence import ShortConv, Ssm
from samebits.models.parts.rope import ROPE_TABLE, Rope, yarn_magnitude
from samebits.models.parts.ssm import GGUF_KEYS as SSM_KEYS

SIGMOID = 2  # GGUF's expert_gating_func
OF_HEADS = ("attention.head_count_kv", "attention.key_length")  # left out where there is no attention


@dataclass(frozen=True)
class Converted:
    """How an architecture's folders become GGUF files.

    gguf         general.architecture there, which may be another than ours
    interleaves  rows of Q and K lie there with rotary pairs side by side
    more         metadata beside what all have; BadInput where no key says what this model does
    """

    gguf: str
    interleaves: bool = False
    more: Callable[[Decoder], dict[str, bytes]] = lambda config: {}


def _no_windows(config: Decoder) -> dict[str, bytes]:
    window = next((layer.window for layer in config.layers if layer.window), None)
    if window is not None:
        needed = "none: GGUF files of this architecture have no windows in llama.cpp"
        raise BadInput("convert", "sliding window", window, needed)
    return {}


def _caps(config: Decoder) -> dict[str, bytes]:
    caps = {"attn_logit_softcapping": config.attn_soft_cap, "final_logit_softcapping": config.final_soft_cap}
    return {key: f32(cap) for key, cap in caps.items() if cap is not None}


def _scalar(config: Decoder, wide_layers: int) -> None:
    """GGUF has no key for the query scalar: readers know it by the number of layers."""
    known = {"num_layers": config.num_layers, "hidden_size": config.hidden_size, "num_heads": config.num_heads}
    needed = gemma2.gguf_scalar({**known, "head_size": config.head_size}, wide_layers)
    if config.query_scalar != needed:
        text = f"{needed:g}, which GGUF's readers take for a model of this size"
        raise BadInput("convert", "query_pre_attn_scalar", f"{config.query_scalar:g}", text)


def _gemma2(config: Decoder) -> dict[str, bytes]:
    _scalar(config, gemma2.WIDE_LAYERS)
    windows = [layer.window for layer in config.layers]
    if windows[0] is None or windows != [windows[0] if i % 2 == 0 else None for i in range(len(windows))]:
        raise BadInput("convert", "sliding windows", windows[:4], "one in every other layer, from the first on")
    return {"attention.sliding_window": u32(windows[0]), **_caps(config)}


def _gemma3(config: Decoder) -> dict[str, bytes]:
    _scalar(config, gemma3.WIDE_LAYERS)
    windows = [layer.window for layer in config.layers]
    window = next((w for w in windows if w), None)
    period = next((i + 1 for i, w in enumerate(windows) if not w), len(windows) + 1)
    if window is None or windows != [window if (i + 1) % period else None for i in range(len(windows))]:
        raise BadInput("convert", "sliding windows", windows[:8], "in all layers but every so-manyth")
    found = {"attention.sliding_window": u32(window), "attention.sliding_window_pattern": u32(period)}
    return {**found, "rope.freq_base_swa": f32(config.ropes[gemma3.LOCAL_TABLE].theta), **_caps(config)}


def _phi3(config: Decoder) -> dict[str, bytes]:
    window = config.layers[0].window  # all layers have the same
    return {} if window is None else {"attention.sliding_window": u32(window)}


def _experts(config: Decoder) -> dict[str, bytes]:
    c = mixture_of(config.mixture)
    found = {"expert_count": c.num_experts, "expert_used_count": c.top_k, "expert_feed_forward_length": c.expert_size}
    return {**_no_windows(config), **{key: u32(value) for key, value in found.items()}}


def _glm4moe(config: Decoder) -> dict[str, bytes]:
    c = mixture_of(config.mixture)
    found = {
        "leading_dense_block_count": sum(layer.ffn == "dense" for layer in config.layers),
        "expert_shared_count": c.shared_size // c.expert_size,
        "expert_group_count": c.num_groups,
        "expert_group_used_count": c.num_groups_kept,
        "expert_gating_func": SIGMOID,
    }
    how = {"expert_weights_norm": boolean(c.is_normalized), "expert_weights_scale": f32(c.scale)}
    return {**_experts(config), **{key: u32(value) for key, value in found.items()}, **how}


def _granite(config: Decoder) -> dict[str, bytes]:
    """Multipliers, and experts where there are any, whose size is that of all feed-forward parts then."""
    found = {
        "attention.scale": config.query_scalar**-0.5,
        "embedding_scale": config.embed_scale,
        "residual_scale": config.factors["residual"],
        "logit_scale": 1 / config.logit_scale,
    }
    scales = {key: f32(value) for key, value in found.items()}
    if config.mixture is None:
        return scales
    experts = _experts(config)
    experts["feed_forward_length"] = experts.pop("expert_feed_forward_length")
    return {**scales, **experts, "expert_shared_feed_forward_length": u32(config.mixture.shared_size)}


def _ssm(config: Decoder) -> dict[str, bytes]:
    if not isinstance(config.recurrence, Ssm):
        raise BadInput("convert", "recurrence", config.recurrence, "state spaces")
    found = {key.gguf: getattr(config.recurrence, name) for name, key in SSM_KEYS.items() if key.gguf}
    return {key: u32(value) for key, value in found.items()}


def _granitehybrid(config: Decoder) -> dict[str, bytes]:
    heads = [config.num_kv_heads if layer.kind == "attention" else 0 for layer in config.layers]
    found = {"attention.head_count_kv": numbers(heads, I32), "rope.scaling.finetuned": boolean(bool(config.ropes))}
    return {**_granite(config), **_ssm(config), **found}


def _lfm2(config: Decoder) -> dict[str, bytes]:
    if not isinstance(config.recurrence, ShortConv):
        raise BadInput("convert", "recurrence", config.recurrence, "short convolutions")
    heads = [config.num_kv_heads if layer.kind == "attention" else 0 for layer in config.layers]
    return {"attention.head_count_kv": numbers(heads, I32), "shortconv.l_cache": u32(config.recurrence.num_taps)}


CONVERTED: Mapping[str, Converted] = {
    "llama": Converted("llama", interleaves=True, more=_no_windows),
    "mistral": Converted("llama", interleaves=True, more=_no_windows),
    "qwen2": Converted("qwen2", more=_no_windows),
    "qwen3": Converted("qwen3", more=_no_windows),
    "gemma2": Converted("gemma2", more=_gemma2),
    "gemma3": Converted("gemma3", more=_gemma3),
    "phi3": Converted("phi3", more=_phi3),
    "mixtral": Converted("llama", interleaves=True, more=_experts),
    "qwen3moe": Converted("qwen3moe", more=_experts),
    "glm4moe": Converted("glm4moe", more=_glm4moe),
    "granitemoe": Converted("granitemoe", interleaves=True, more=_granite),
    "lfm2": Converted("lfm2", more=_lfm2),
    "mamba2": Converted("mamba2", more=_ssm),
    "granitehybrid": Converted("granitehybrid", interleaves=True, more=_granitehybrid),
}


def model_metadata(config: Decoder, how: Converted) -> dict[str, bytes]:
    """The keys below the architecture's name."""
    stated = {key.gguf: _number(key, getattr(config, name)) for name, key in KEYS.items() if key.gguf}
    found = {key: value for key, value in stated.items() if config.num_heads or key not in OF_HEADS}
    if config.num_heads:
        found["attention.value_length"] = u32(config.head_size)
    if (rope := config.ropes.get(ROPE_TABLE)) is not None:
        found |= {"rope.dimension_count": u32(rope.dims), "rope.freq_base": f32(rope.theta), **_scaling(rope)}
    found["vocab_size"] = u32(config.vocab_size)
    return {f"{how.gguf}.{key}": value for key, value in {**found, **how.more(config)}.items()}


def _number(key: Key, value: int | float) -> bytes:
    return u32(int(value)) if key.is_whole else f32(value)


def _scaling(rope: Rope) -> dict[str, bytes]:
    """Of a rotation for long contexts; Llama 3's is a tensor, see `rope_tensors`."""
    s = rope.scaling
    if s.kind == "linear":
        return {"rope.scaling.type": string("linear"), "rope.scaling.factor": f32(s.factor)}
    if s.kind == "yarn":
        if not s.is_truncated or not math.isclose(s.magnitude, yarn_magnitude(s.factor), rel_tol=1e-6):
            raise BadInput("convert", "rope_scaling", "a yarn of its own", "truncated bounds and the usual magnitude")
        return {
            "rope.scaling.type": string("yarn"),
            "rope.scaling.factor": f32(s.factor),
            "rope.scaling.original_context_length": u32(s.original_len),
            "rope.scaling.yarn_beta_fast": f32(s.beta_fast),
            "rope.scaling.yarn_beta_slow": f32(s.beta_slow),
        }
    if s.kind == "longrope":
        found = {"rope.scaling.original_context_length": u32(s.original_len)}
        return {**found, "rope.scaling.attn_factor": f32(s.magnitude)}
    return {}


def rope_tensors(config: Decoder) -> dict[str, np.ndarray]:
    """Tensors of a GGUF file that a folder states as numbers: divisors of frequencies."""
    if (rope := config.ropes.get(ROPE_TABLE)) is None:
        return {}
    s = rope.scaling
    if s.kind == "longrope":
        return {
            "rope_factors_short.weight": np.array(s.short, np.float32),
            "rope_factors_long.weight": np.array(s.long, np.float32),
        }
    if s.kind != "llama3":
        return {}
    frequencies = rope.theta ** -(np.arange(0, rope.dims, 2) / rope.dims)
    turns = s.original_len * frequencies / (2 * np.pi)  # over the first context
    share = np.clip((turns - s.low) / (s.high - s.low), 0, 1)  # of the frequency that is kept
    return {"rope_freqs.weight": (1 / ((1 - share) / s.factor + share)).astype(np.float32)}
