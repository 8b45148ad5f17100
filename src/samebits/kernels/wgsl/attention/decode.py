"""Sequences with one query: logits and maxima by cuts, sums by runs, then all of them joined in order."""

from __future__ import annotations

from dataclasses import replace

from samebits.kernels.wgsl.attention import call as shared
from samebits.kernels.wgsl.lib.launch import MAX_GROUPS, Binding, Call, Dispatch, Operand, ceil_div
from samebits.kernels.wgsl.lib.packing import CHUNK_BYTES

CUT_LEN, RUNS = 256, 16  # positions of a cut, its runs
SCORE_LANES, JOIN_LANES = 32, 64
MOST_PAIRS = 4  # heads that share a KV head
MOST_COLUMNS = 256  # of a value head: 16 per invocation, 16 runs


def _num_cuts(call: Call, sizes: shared.Sizes) -> int:
    """Numbers of cuts: of all entries of the table, and one more for each sequence."""
    indices = call.optional("kv_indices")
    entries = sizes.num_sequences if indices is None else indices.shape[0]
    return entries * sizes.keys.page_size // CUT_LEN + sizes.num_sequences


def _row(sizes: shared.Sizes) -> int:
    """Sums of a run: its columns, and p's."""
    return ceil_div(sizes.stored_width, 8) * 8 + 1


def serves_decode(call: Call, sizes: shared.Sizes) -> bool:
    """Whether memory between the passes can be had, and a tile of four holds a KV head's queries."""
    units = sizes.keys.num_heads * _num_cuts(call, sizes)
    fits = units * 16 * max(RUNS * _row(sizes), CUT_LEN) <= CHUNK_BYTES and _num_cuts(call, sizes) <= MAX_GROUPS
    return fits and sizes.group <= MOST_PAIRS and sizes.stored_width <= MOST_COLUMNS


def _between(name: str, tensor: Operand, access: str) -> Binding:
    return Binding(name, tensor, "write" if access == "write" else "read", "vec4")


def decode(call: Call, sizes: shared.Sizes) -> list[Dispatch]:
    """Three passes."""
    keys, values, num_cuts = sizes.keys, sizes.values, _num_cuts(call, sizes)
    units = keys.num_heads * num_cuts
    logits, maxima, sums = (call.scratch(4 * units * n) for n in (CUT_LEN, 1, RUNS * _row(sizes)))
    lse, store_lse = shared.lse_of(call)
    small, mask = shared.small_inputs(call), Binding("mask", call.optional("custom_mask"))
    no_mask = Binding("mask", None)
    by_cuts = (num_cuts, keys.num_heads, 1)
    value_lanes = max(32, RUNS * ceil_div(ceil_div(sizes.stored_width, 8), 2))
    common = {**shared.logit_constants(call), **shared.key_constants(keys, sizes.head_size)}
    first = Dispatch(
        "attention/decode_scores",
        (
            Binding("q", call.tensor("q")),
            shared.key_binding(keys, sizes.head_size),
            *small,
            mask,
            _between("logits", logits, "write"),
            _between("cut_maxima", maxima, "write"),
        ),
        by_cuts,
        consts={**sizes.constants(1, SCORE_LANES), **common},
        params={**shared.numbers(call, keys), "num_cuts": num_cuts},
        snippets=("attention/quads_1", "attention/logits_1", *shared.key_snippets(keys, sizes.head_size, 1)),
        faults=shared.FAULTS,
    )
    second = replace(
        first,
        shader="attention/decode_values",
        bindings=(
            shared.value_binding(values, sizes.v_dim),
            *small,
            no_mask,
            _between("logits", logits, "read"),
            _between("cut_maxima", maxima, "read"),
            _between("sums", sums, "write"),
        ),
        consts={
            **sizes.constants(1, value_lanes),
            **shared.logit_constants(call),
            **shared.value_constants(values, sizes.v_dim),
        },
        snippets=("attention/quads_1", *shared.value_snippets(values, sizes.v_dim)),
    )
    third = replace(
        second,
        shader="attention/decode_join",
        bindings=(
            *small,
            no_mask,
            _between("cut_maxima", maxima, "read"),
            _between("sums", sums, "read"),
            Binding("out", call.outputs[0], "write"),
            lse,
        ),
        grid=(sizes.num_sequences, keys.num_heads, 1),
        consts={**second.consts, "LANES": JOIN_LANES},
        snippets=("attention/quads_1", shared.column_snippet(values), store_lse),
    )
    return [first, second, third]
