"""Equality of bytes for the ops on paged caches: chunks, pages, layouts and neighbours never move a bit."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from op_helpers import as_bytes, assert_same_bits, storage
from paged_scenes import (
    FEATURES,
    GROUP,
    HEADS,
    Layout,
    Sequence,
    append,
    attend,
    baseline,
    empty_caches,
    sequence,
    stored,
    table_for,
)

from samebits.core.numerics.counter import Stream
from samebits.ops.record import CACHES

LONG = 300
quick = settings(max_examples=120, deadline=None, derandomize=True, database=None)


@functools.cache
def whole(length: int, k: str, v: str, feature: str) -> tuple[np.ndarray, np.ndarray]:
    return baseline(sequence("target", length), k, v, **FEATURES[feature])


def assert_same(got: tuple, want: tuple, what: str = "") -> None:
    for g, w, name in zip(got, want, ("out", "lse"), strict=True):
        assert_same_bits(np.ascontiguousarray(g), np.ascontiguousarray(w), f"{what} {name}")


def rows(result: tuple, at: slice) -> tuple:
    return tuple(x[at] for x in result)


def in_chunks(tokens: Sequence, ends: list[int], layout: Layout, **options: Any) -> tuple:
    """Append a chunk, attend with its queries, go on: what a chunked prefill does."""
    caches, results, start = empty_caches(layout, [len(tokens)]), [], 0
    for stop in ends:
        inputs = {**caches, **table_for(layout, [stop])}
        append(inputs, layout, 0, tokens, start, stop)
        results.append(attend(inputs, layout, [tokens.q[start:stop]], **options)[0])
        start = stop
    return tuple(np.concatenate(parts) for parts in zip(*results, strict=True))


@pytest.mark.parametrize("split", [1, 15, 16, 17, 63, 64, 65, 255, 256, 257, 299])
def test_prefill_split_anywhere_gives_the_bits_of_the_whole(split):
    got = in_chunks(sequence("target", LONG), [split, LONG], Layout())
    assert_same(got, whole(LONG, "f16", "f16", "plain"), f"split at {split}")


@pytest.mark.parametrize("feature", FEATURES)
@pytest.mark.parametrize(("k", "v"), [("f32", "f32"), ("bf16", "bf16"), ("q8_0", "q8_0"), ("q4_0", "f16")])
def test_split_prefill_with_features_and_formats(k, v, feature):
    got = in_chunks(sequence("target", 90), [17, 64, 90], Layout(k=k, v=v), **FEATURES[feature])
    assert_same(got, whole(90, k, v, feature), feature)


@pytest.mark.parametrize("chunk", [1, 16, 64])
@pytest.mark.parametrize("fmt", ["f16", "bf16", "q8_0", "q4_0"])
def test_append_then_attend_in_chunks_equals_one_chunk(fmt, chunk):
    tokens = sequence("target", 70)
    got = in_chunks(tokens, [*range(chunk, 70, chunk), 70], Layout(k=fmt, v=fmt))
    assert_same(got, whole(70, fmt, fmt, "plain"), f"chunks of {chunk}")


def test_custom_mask_in_chunks_equals_the_whole_mask():
    n, tokens = 70, sequence("target", 70)
    mask = Stream("mask").uniform(0, 1, (n, n)) < 0.5
    want = baseline(tokens, custom_mask=mask.ravel())
    layout = Layout()
    inputs = stored(layout, [tokens])
    for start, stop in ((0, 17), (17, 64), (64, 70)):
        part = {**inputs, **table_for(layout, [stop])}
        seen = np.ascontiguousarray(mask[start:stop, :stop]).ravel()
        got = attend(part, layout, [tokens.q[start:stop]], custom_mask=seen)[0]
        assert_same(got, rows(want, slice(start, stop)), f"rows {start} .. {stop}")


LAYOUTS = {
    "scattered pages": Layout(pages=(5, 1, 8, 3, 7)),
    "reversed pages": Layout(pages=(4, 3, 2, 1, 0)),
    "pages of 8": Layout(page_size=8),
    "pages of 32": Layout(page_size=32),
    "pages of 32, scattered": Layout(page_size=32, pages=(2, 9, 0)),
    "one page": Layout(page_size=128),
    "contiguous": Layout(table=False),
    "HND": Layout(order="HND"),
    "unified": Layout(kind="unified"),
    "unified HND, scattered": Layout(kind="unified", order="HND", pages=(5, 1, 8, 3, 7)),
    "contiguous HND": Layout(table=False, order="HND"),
}


@pytest.mark.parametrize("fmt", ["f16", "bf16", "q8_0", "q4_0"])
@pytest.mark.parametrize("name", LAYOUTS)
def test_layout_of_the_cache_does_not_move_a_bit(name, fmt):
    layout = Layout(**{**vars(LAYOUTS[name]), "k": fmt, "v": fmt})
    tokens = sequence("target", 70)
    got = attend(stored(layout, [tokens]), layout, [tokens.q])[0]
    assert_same(got, whole(70, fmt, fmt, "plain"), name)


@pytest.mark.parametrize("feature", FEATURES)
def test_scattered_pages_with_features(feature):
    layout, tokens = Layout(pages=(5, 1, 8, 3, 7)), sequence("target", 70)
    got = attend(stored(layout, [tokens]), layout, [tokens.q], **FEATURES[feature])[0]
    assert_same(got, whole(70, "f16", "f16", feature), feature)


@pytest.mark.parametrize("place", [0, 1, 3])
@pytest.mark.parametrize("fmt", CACHES)
def test_neighbours_added_and_spoiled_do_not_matter(fmt, place):
    """Neighbours hold NaN; with a float32 cache they also ask, and get NaN, beside the target."""
    target, layout = sequence("target", 70), Layout(k=fmt, v=fmt)
    batch = [sequence(f"neighbour {n}", n) for n in (33, 7, 16)]
    batch.insert(place, target)
    inputs = stored(layout, batch)
    mine = inputs["kv_indices"][inputs["kv_indptr"][place] : inputs["kv_indptr"][place + 1]]
    others = np.setdiff1d(
        np.arange(len(inputs["k_cache"].data if fmt in ("q8_0", "q4_0") else inputs["k_cache"])), mine
    )
    for name in ("k_cache", "v_cache"):
        cells = storage(inputs[name])
        cells.view(np.uint8)[others] = 0xFF
    queries = [s.q if s is target else s.q[:0] for s in batch]
    assert_same(attend(inputs, layout, queries)[place], whole(70, fmt, fmt, "plain"))


def test_values_of_a_neighbour_spoil_only_the_neighbour():
    layout, target, other = Layout(k="f32", v="f32"), sequence("target", 70), sequence("other", 20)
    inputs = stored(layout, [other, target])
    inputs["v_cache"][inputs["kv_indices"][:2]] = np.nan
    spoiled, mine = attend(inputs, layout, [other.q, target.q])
    assert np.isnan(spoiled[0]).all()
    assert_same(mine, whole(70, "f32", "f32", "plain"))


@pytest.mark.parametrize("batch", [1, 2, 3, 4, 8, 16, 33])
def test_decode_in_a_batch_equals_decode_alone(batch):
    layout = Layout()
    sequences = [sequence(f"s{b}", 1 + (b * 37) % 61) for b in Stream("order").permutation(33)[:batch]]
    together = attend(stored(layout, sequences), layout, [s.q[-1:] for s in sequences])
    for s, got in zip(sequences, together, strict=True):
        assert_same(got, attend(stored(layout, [s]), layout, [s.q[-1:]])[0])


def test_order_of_heads_does_not_matter():
    """KV heads and their query groups in another order: the same outputs in that order."""
    s, turned = sequence("target", 40), [1, 0]
    queries = s.q.reshape(40, HEADS, GROUP, -1)[:, turned][:, :, ::-1].reshape(s.q.shape)
    out, lse = baseline(Sequence(queries, s.k[:, turned], s.v[:, turned]))
    back = out.reshape(40, HEADS, GROUP, -1)[:, turned][:, :, ::-1].reshape(out.shape)
    lse_back = lse.reshape(40, HEADS, GROUP)[:, turned][:, :, ::-1].reshape(lse.shape)
    assert_same((back, lse_back), baseline(s))


def test_cells_do_not_depend_on_how_tokens_arrive():
    """One call, one call a token, and all sequences mixed in one call store the same bytes."""
    for fmt in CACHES:
        layout, batch = Layout(k=fmt, v=fmt, pages=(5, 1, 8, 3, 7)), [sequence("a", 20), sequence("b", 33)]
        want = stored(layout, batch)
        single = {**empty_caches(layout, [20, 33]), **table_for(layout, [20, 33])}
        for b, s in enumerate(batch):
            for t in Stream(f"order {b}").permutation(len(s)).tolist():
                append(single, layout, b, s, t, t + 1)
        for name in ("k_cache", "v_cache"):
            assert as_bytes(single[name]) == as_bytes(want[name]), fmt


@quick
@given(st.data())
def test_any_split_layout_and_company_gives_the_bits_of_the_whole(data):
    """Random lengths, cuts, pages, formats, features and neighbours, all at once."""
    draw = data.draw
    length = draw(st.integers(1, 60))
    fmt, feature = draw(st.sampled_from(CACHES)), draw(st.sampled_from(sorted(FEATURES)))
    cuts = sorted(draw(st.sets(st.integers(1, length), max_size=3)) | {length})
    page_size = draw(st.sampled_from([8, 16, 32]))
    neighbours = [sequence(f"n{n}", n) for n in draw(st.lists(st.integers(1, 20), max_size=2))]
    kind = draw(st.sampled_from(["split", "unified"]))
    layout = Layout(
        fmt, fmt, page_size, draw(st.sampled_from(["NHD", "HND"])), kind, pages=tuple(draw(st.permutations(range(14))))
    )
    target = sequence("target", length)
    caches = empty_caches(layout, [length, *map(len, neighbours)])
    full = table_for(layout, [length, *map(len, neighbours)])
    for b, s in enumerate(neighbours, start=1):
        append({**caches, **full}, layout, b, s, 0, len(s))
    start, num_pages = 0, full["kv_indptr"][1]
    for stop in cuts:
        used = -(-stop // page_size)
        ids = np.concatenate([full["kv_indices"][:used], full["kv_indices"][num_pages:]])
        indptr = np.concatenate([[0], full["kv_indptr"][1:] - num_pages + used]).astype(np.int32)
        last = np.concatenate([[stop - (used - 1) * page_size], full["kv_last_page_len"][1:]]).astype(np.int32)
        inputs = {**caches, "kv_indices": ids, "kv_indptr": indptr, "kv_last_page_len": last}
        append(inputs, layout, 0, target, start, stop)
        queries = [target.q[start:stop], *(s.q[-1:] for s in neighbours)]
        got = attend(inputs, layout, queries, **FEATURES[feature])[0]
        assert_same(got, rows(whole(length, fmt, fmt, feature), slice(start, stop)))
        start = stop
