"""paged_attention: tiles of queries and heads that share a KV head, over all positions they see; K is read twice."""

from __future__ import annotations

from samebits.core.format import BLOCK
from samebits.kernels.record import OpCall
from samebits.kernels.wgsl.attention import call as shared
from samebits.kernels.wgsl.lib.cache_views import BLOCK_FORMATS, CacheView, whole_words
from samebits.kernels.wgsl.lib.launch import Binding, Call, Dispatch, ceil_div
from samebits.kernels.wgsl.lib.registry import implements, only_f32

MOST_SHARED_HEAD = 128  # elements; a tile of 16 pairs holds no larger queries
LARGEST_HEAD = 1024  # elements; the tree of float_keys.wgsl ends there


def _refusal(call: OpCall) -> str | None:
    head_size = call.inputs["q"].shape[-1]
    if isinstance(head_size, int) and head_size > LARGEST_HEAD:
        return f"wgsl takes heads of {LARGEST_HEAD} elements at most, not {head_size}"
    return only_f32("q")(call) or whole_words(call)


def _quads(call: Call, keys: CacheView, values: CacheView, group: int) -> int:
    """Pairs of a tile in fours: 4, where a tile may have so many and workgroup memory holds their queries."""
    num_tokens, _, head_size = call.tensor("q").shape
    num_sequences = call.tensor("kv_last_page_len").shape[0]
    is_small = num_tokens <= num_sequences and group <= 4
    has_blocks = keys.format in BLOCK_FORMATS or values.format in BLOCK_FORMATS
    return 1 if is_small or has_blocks or head_size > MOST_SHARED_HEAD else 4


def _lanes(stored_width: int) -> int:
    """Invocations of a workgroup: each has eight columns of the values."""
    return next(lanes for lanes in (32, 64, 128) if 8 * lanes >= stored_width)


@implements("paged_attention", when=_refusal)
def paged_attention(call: Call) -> list[Dispatch]:
    q = call.tensor("q")
    num_tokens, num_heads, head_size = q.shape
    keys, values = shared.views(call)
    v_dim = call.outputs[0].shape[2]
    group = num_heads // keys.num_heads
    num_sequences = call.tensor("kv_last_page_len").shape[0]
    quads = _quads(call, keys, values, group)
    stored_width = ceil_div(v_dim, BLOCK) * BLOCK if values.format in BLOCK_FORMATS else v_dim
    lse, store_lse = shared.lse_of(call)
    num_tiles = num_tokens * group // (4 * quads) + num_sequences if num_tokens else 0
    return [
        Dispatch(
            "attention/tile",
            (
                Binding("q", q),
                shared.key_binding(keys, head_size),
                shared.value_binding(values, v_dim),
                *shared.small_inputs(call),
                Binding("mask", call.optional("custom_mask")),
                Binding("out", call.outputs[0], "write"),
                lse,
            ),
            (num_tiles, keys.num_heads, 1),
            consts={
                "G": quads,
                "LANES": _lanes(stored_width),
                "D": head_size,
                "DV": v_dim,
                "DV_STORED": stored_width,
                "GROUP": group,
                "PAGE_SIZE": keys.page_size,
                **shared.key_constants(keys, head_size),
                **shared.value_constants(values, v_dim),
                **shared.logit_constants(call),
            },
            params=shared.numbers(call, keys),
            snippets=(
                f"attention/quads_{quads}",
                f"attention/tile_quads_{quads}",
                *shared.key_snippets(keys, head_size, quads),
                *shared.value_snippets(values, v_dim),
                store_lse,
            ),
            faults=shared.FAULTS,
        )
    ]
