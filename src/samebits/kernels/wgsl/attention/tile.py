"""paged_attention: tiles of queries and heads that share a KV head, over all positions they see; K is read twice."""

from __future__ import annotations

from samebits.kernels.record import OpCall
from samebits.kernels.wgsl.attention import call as shared
from samebits.kernels.wgsl.lib.cache_views import BLOCK_FORMATS, CacheView, whole_words
from samebits.kernels.wgsl.lib.launch import Binding, Call, Dispatch
from samebits.kernels.wgsl.lib.registry import implements, only_f32

LARGEST_HEAD = 1024  # elements; the tree of float_keys.wgsl ends there


def _refusal(call: OpCall) -> str | None:
    head_size = call.inputs["q"].shape[-1]
    if isinstance(head_size, int) and head_size > LARGEST_HEAD:
        return f"wgsl takes heads of {LARGEST_HEAD} elements at most, not {head_size}"
    return only_f32("q")(call) or whole_words(call)


def lanes_of(words: int) -> int:
    """Invocations of a workgroup: a word of the values each, up to two."""
    return 32 if words <= 32 else 64


def quads_of(num_tokens: int, num_sequences: int, group: int, head_size: int, values: CacheView) -> int:
    """Pairs of a tile in fours: as many as there may be, and as workgroup memory holds beside their queries."""
    if num_tokens <= num_sequences and group <= 4:
        return 1
    if head_size > 256:
        return 1
    return 2 if head_size > 128 or values.format in BLOCK_FORMATS else 4


@implements("paged_attention", when=_refusal)
def paged_attention(call: Call) -> list[Dispatch]:
    q = call.tensor("q")
    num_tokens, num_heads, head_size = q.shape
    keys, values = shared.views(call)
    v_dim = call.outputs[0].shape[2]
    group = num_heads // keys.num_heads
    num_sequences = call.tensor("kv_last_page_len").shape[0]
    quads = quads_of(num_tokens, num_sequences, group, head_size, values)
    lse, store_lse = shared.lse_of(call)
    num_tiles = num_tokens * group // (4 * quads) + num_sequences if num_tokens else 0
    return [
        Dispatch(
            "attention/tile",
            (
                Binding("q", q),
                shared.key_binding(keys, head_size),
                Binding("v", values.tensor, "read", values.view),
                *shared.small_inputs(call),
                Binding("mask", call.optional("custom_mask")),
                Binding("out", call.outputs[0], "write"),
                lse,
            ),
            (num_tiles, keys.num_heads, 1),
            consts={
                "G": quads,
                "LANES": lanes_of(shared.value_words(values, v_dim)),
                "D": head_size,
                "DV": v_dim,
                "GROUP": group,
                "PAGE_SIZE": keys.page_size,
                **shared.key_constants(keys, head_size),
                **shared.value_constants(values, v_dim),
                **shared.logit_constants(call),
            },
            params=shared.numbers(call, keys),
            snippets=(*shared.key_snippets(keys, head_size), shared.value_snippet(values), store_lse),
            faults=shared.FAULTS,
        )
    ]
