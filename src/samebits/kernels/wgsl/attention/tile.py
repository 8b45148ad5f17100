"""Tiles of queries and heads that share a KV head, over all positions they see; K is read twice."""

from __future__ import annotations

from samebits.kernels.wgsl.attention import call as shared
from samebits.kernels.wgsl.lib.launch import MAX_GROUPS, Binding, Call, Dispatch, ceil_div

QUADS = 1  # pairs of a tile in fours; with 16 pairs compilers take minutes


def _lanes(stored_width: int) -> int:
    """Invocations of a workgroup: each has eight columns of the values."""
    return next(lanes for lanes in (32, 64, 128) if 8 * lanes >= stored_width)


def tiles(call: Call, sizes: shared.Sizes, *, skips_single: bool) -> Dispatch:
    """All queries; with `skips_single` those of sequences with one alone are left out."""
    keys, values = sizes.keys, sizes.values
    lse, store_lse = shared.lse_of(call)
    num_tiles = sizes.num_tokens * sizes.group // (4 * QUADS) + sizes.num_sequences if sizes.num_tokens else 0
    depth = max(1, ceil_div(num_tiles, MAX_GROUPS))
    return Dispatch(
        "attention/tile",
        (
            Binding("q", call.tensor("q")),
            shared.key_binding(keys, sizes.head_size),
            shared.value_binding(values, sizes.v_dim),
            *shared.small_inputs(call),
            Binding("mask", call.optional("custom_mask")),
            Binding("out", call.outputs[0], "write"),
            lse,
        ),
        (ceil_div(num_tiles, depth), keys.num_heads, depth),
        consts={
            **sizes.constants(QUADS, _lanes(sizes.stored_width)),
            **shared.key_constants(keys, sizes.head_size),
            **shared.value_constants(values, sizes.v_dim),
            **shared.logit_constants(call),
            "SKIPS_SINGLE": skips_single,
        },
        params=shared.numbers(call, keys),
        snippets=(
            f"attention/quads_{QUADS}",
            f"attention/tile_quads_{QUADS}",
            f"attention/logits_{QUADS}",
            *shared.key_snippets(keys, sizes.head_size, QUADS),
            *shared.value_snippets(values, sizes.v_dim),
            shared.column_snippet(values),
            store_lse,
        ),
        faults=shared.FAULTS,
    )
