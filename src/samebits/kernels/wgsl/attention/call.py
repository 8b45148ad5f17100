"""What all dispatches of paged_attention share: bindings, constants, parameters, faults."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from samebits.core.format import BLOCK
from samebits.core.numerics.elementary import recip
from samebits.kernels.wgsl.lib.cache_views import BLOCK_FORMATS, UNITS, CacheView, cache_views
from samebits.kernels.wgsl.lib.faults import fault
from samebits.kernels.wgsl.lib.launch import Binding, Call, Tables, ceil_div

OP = "paged_attention"
MOST_WINDOW = 1 << 30  # positions; more is the same as all of them
FAULTS = {
    "BAD_TABLE": fault(OP, "kv_indptr", "a table or a length outside its arrays", "what ops/paged.py states"),
    "BAD_PAGE": fault(OP, "kv_indices", "a page that does not exist", "pages of the cache"),
    "BAD_QUERY": fault(OP, "q", "NaN, Inf or a value beyond the type's range", "finite values"),
    "BAD_COUNT": fault(OP, "qo_indptr", "more queries than tokens", "at most a sequence's length"),
    "BAD_SCORE": fault(OP, "k_cache", "NaN or Inf, stored or in a score", "finite values"),
    "BAD_VALUE": fault(OP, "v_cache", "NaN, Inf or a value beyond the type's range", "what append stores"),
    "BAD_MASK": fault(OP, "custom_mask", "too few entries", "queries x length of every sequence"),
    "BAD_SLOPES": fault(OP, "alibi_slopes", "NaN or Inf", "finite values"),
    "TOO_LONG": fault(OP, "kv_indptr", "more positions than the driver's loops go over", "fewer, or another driver"),
    "BAD_SINKS": fault(OP, "sinks", "NaN or +Inf", "finite values or -Inf"),
}


@dataclass(frozen=True)
class Sizes:
    """A call's sizes, and its cache as views."""

    num_tokens: int
    num_sequences: int
    head_size: int
    v_dim: int
    group: int
    keys: CacheView
    values: CacheView

    @property
    def stored_width(self) -> int:
        """Columns of a value head with what fills its last block."""
        return ceil_div(self.v_dim, BLOCK) * BLOCK if self.values.format in BLOCK_FORMATS else self.v_dim

    @property
    def has_blocks(self) -> bool:
        return self.keys.format in BLOCK_FORMATS or self.values.format in BLOCK_FORMATS

    def constants(self, quads: int, lanes: int) -> dict[str, int | bool]:
        """What every shader of attention is compiled for."""
        return {
            "G": quads,
            "LANES": lanes,
            "D": self.head_size,
            "DV": self.v_dim,
            "DV_STORED": self.stored_width,
            "GROUP": self.group,
            "PAGE_SIZE": self.keys.page_size,
        }


def sizes_of(call: Call) -> Sizes:
    num_tokens, num_heads, head_size = call.tensor("q").shape
    keys, values = cache_views(call.tensor("k_cache"), call.optional("v_cache"), str(call.attrs["layout"]))
    num_sequences, v_dim = call.tensor("kv_last_page_len").shape[0], call.outputs[0].shape[2]
    return Sizes(num_tokens, num_sequences, head_size, v_dim, num_heads // keys.num_heads, keys, values)


def is_whole(cache: CacheView, width: int) -> bool:
    """Whether `width` elements of each head of a plain cache are whole vec4s."""
    elements = 4 * UNITS[cache.format]
    return cache.format not in BLOCK_FORMATS and width % elements == 0 and cache.tensor.shape[-1] % elements == 0


def small_inputs(call: Call) -> tuple[Binding | Tables, ...]:
    """The step's integers in one binding, slopes and sinks in it too, or beside it where they are a model's own."""
    qo = call.tensor("qo_indptr")
    floats = {"slopes": call.optional("alibi_slopes"), "sinks": call.optional("sinks")}
    apart = {name: tensor for name, tensor in floats.items() if tensor is not None and tensor.buffer is not qo.buffer}
    tables = {
        "qo": qo,
        "last": call.tensor("kv_last_page_len"),
        "indptr": call.optional("kv_indptr"),
        "indices": call.optional("kv_indices"),
        **{name: tensor for name, tensor in floats.items() if name not in apart},
    }
    return Tables(tables), *(Binding(name, tensor) for name, tensor in apart.items())


def key_binding(keys: CacheView, width: int) -> Binding:
    return Binding("k", keys.tensor, "read", "vec4" if is_whole(keys, width) else keys.view)


def key_constants(keys: CacheView, width: int) -> dict[str, int | bool]:
    """What the snippets of keys read."""
    divisor = 4 if is_whole(keys, width) else 1
    strides = {name: number // divisor for name, number in keys.numbers("K").items()}
    if keys.format in BLOCK_FORMATS:
        return {**strides, "K_Q8": keys.format == "q8_0"}
    words = {} if is_whole(keys, width) else {"K_WORDS": ceil_div(width, UNITS[keys.format])}
    return {**strides, **words, "K_F32": keys.format == "f32", "K_F16": keys.format == "f16"}


def key_snippets(keys: CacheView, width: int, quads: int) -> tuple[str, ...]:
    if keys.format in BLOCK_FORMATS:
        return ("attention/block_keys",)
    loads = "attention/vec4_keys" if is_whole(keys, width) else "attention/word_keys"
    return loads, f"attention/query_quads_{quads}", "attention/float_keys"


def value_binding(values: CacheView, width: int) -> Binding:
    return Binding("v", values.tensor, "read", "vec4" if is_whole(values, width) else values.view)


def value_constants(values: CacheView, width: int) -> dict[str, int | bool]:
    """What the snippets of values read."""
    divisor = 4 if is_whole(values, width) else 1
    strides = {name: number // divisor for name, number in values.numbers("V").items()}
    if values.format in BLOCK_FORMATS:
        return {**strides, "V_Q8": values.format == "q8_0"}
    words = {} if is_whole(values, width) else {"V_WORDS": ceil_div(width, UNITS[values.format])}
    return {**strides, **words, "V_F32": values.format == "f32", "V_F16": values.format == "f16"}


def value_snippets(values: CacheView, width: int) -> tuple[str, ...]:
    if values.format in BLOCK_FORMATS:
        return ("attention/block_values",)
    return ("attention/vec4_values" if is_whole(values, width) else "attention/word_values", "attention/float_values")


def column_snippet(values: CacheView) -> str:
    return f"attention/{'block' if values.format in BLOCK_FORMATS else 'float'}_columns"


def logit_constants(call: Call) -> dict[str, int | bool]:
    attrs = call.attrs
    return {
        "CAUSAL": bool(attrs["causal"]),
        "WINDOWED": attrs["window_left"] >= 0,
        "CAPPED": attrs["logits_soft_cap"] != 0,
    }


def numbers(call: Call, keys: CacheView) -> dict[str, int | float]:
    """Uniform words."""
    q, attrs, mask = call.tensor("q"), call.attrs, call.optional("custom_mask")
    indices = call.optional("kv_indices")
    scale, cap = attrs["sm_scale"], np.float32(attrs["logits_soft_cap"])
    return {
        "num_tokens": q.shape[0],
        "num_sequences": call.tensor("kv_last_page_len").shape[0],
        "num_entries": 0 if indices is None else indices.shape[0],
        "num_pages": keys.num_pages,
        "mask_size": 0 if mask is None else mask.shape[0],
        "window": min(max(attrs["window_left"], 0), MOST_WINDOW),
        "scale": float(np.float32(1.0 / math.sqrt(q.shape[2]) if scale is None else scale)),
        "cap": float(cap),
        "inv_cap": float(recip(np.array(cap))) if cap else 0.0,
    }


def lse_of(call: Call) -> tuple[Binding, str]:
    """The binding of lse, absent where none is wanted, and the snippet that stores it."""
    wanted = bool(call.attrs["return_lse"])
    return Binding("lse", call.outputs[1] if wanted else None, "write"), f"attention/{'lse' if wanted else 'no_lse'}"
