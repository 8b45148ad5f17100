"""The written rules one by one: ties, masks, positions, small numbers, rotary tables, merging."""

from __future__ import annotations

import ml_dtypes
import mpmath
import numpy as np
import pytest
from op_helpers import as_bytes, assert_same_bits, inputs_of, run, storage
from oracles import split_blocks
from paged_scenes import GROUP, HEADS, Layout, attend, baseline, poisoned, sequence, stored

from samebits.core.format import Packed
from samebits.core.numerics.counter import Stream
from samebits.ops.kv_cases import append_case, append_inputs
from samebits.ops.record import CACHES
from samebits.ops.rope import rope_table

F = np.float32


def spoil(cache, pages, byte_or_inf) -> None:
    """NaN or Inf into whole pages; in a quantized cache into the scales."""
    if isinstance(cache, Packed):
        blocks = cache.data.reshape(*cache.data.shape[:-1], -1, cache.format.block_bytes)
        blocks[pages, ..., :2] = np.array([byte_or_inf], np.float16).view(np.uint8)
        blocks[pages, ..., 2:] = 0
    else:
        cache[pages] = byte_or_inf


@pytest.mark.parametrize("width", [1, 2, 7, 8, 16, 17, 33, 64, 100])
def test_ties_go_to_the_lowest_index_and_zeros_are_equal(width):
    x = np.where(np.arange(width) % 2 == 0, F(-0.0), F(0.0))[None, :]
    assert run("argmax", x) == 0
    values, indices = run("top_k", x, k=width)
    assert indices.tolist() == [list(range(width))]
    assert as_bytes(values) == as_bytes(np.zeros_like(x))
    assert run("argmax", np.full((1, width), -np.inf, F)) == 0


@pytest.mark.parametrize("k", [1, 3, 63, 64])
def test_top_k_mask_keeps_exactly_k_with_ties(k):
    x = np.zeros((2, 64), F)
    x[1, 10:20] = 1
    y = run("top_k_mask_logits", x, k=k)
    assert (np.isfinite(y).sum(axis=1) == k).all()
    assert np.isfinite(y[0]).nonzero()[0].tolist() == list(range(k))
    assert np.isfinite(y[1, 10 : 10 + min(k, 10)]).all()


def test_a_k_beyond_the_row_keeps_it_whole():
    x = Stream("x").normal((2, 9))
    assert_same_bits(run("top_k_mask_logits", x, k=10), x)


@pytest.mark.parametrize("fmt", CACHES)
def test_a_query_that_sees_nothing_gives_zero_and_lse_minus_infinity(fmt):
    tokens = sequence("t", 20)
    mask = np.ones((20, 20), bool)
    mask[3] = False
    out, lse = baseline(tokens, fmt, fmt, custom_mask=mask.ravel())
    assert as_bytes(out[3]) == as_bytes(np.zeros_like(out[3]))
    assert (lse[3] == -np.inf).all()
    assert np.isfinite(lse[4:]).all()
    assert (run("softmax", np.ones((1, 5), F), np.zeros((1, 5), bool)) == 0).all()
    assert (run("softmax", np.full((1, 5), -np.inf, F)) == 0).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("fmt", CACHES)
def test_what_no_query_sees_never_matters(fmt, bad):
    """Pages that slid out of the window may be freed and hold anything."""
    tokens, layout = sequence("t", 70), Layout(k=fmt, v=fmt)
    inputs = stored(layout, [tokens])
    want = attend(inputs, layout, [tokens.q[-3:]], window_left=20)[0]
    for name in ("k_cache", "v_cache"):
        spoil(inputs[name], [0, 1], bad)
    got = attend(inputs, layout, [tokens.q[-3:]], window_left=20)[0]
    assert [as_bytes(x) for x in got] == [as_bytes(x) for x in want]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_value_masked_for_one_query_does_not_reach_it_through_another(bad):
    tokens, layout = sequence("t", 20), Layout(k="f32", v="f32")
    inputs = stored(layout, [tokens])
    want = attend(inputs, layout, [tokens.q])[0]
    inputs["v_cache"][1, 3] = bad  # position 19: only the last query sees it
    got = attend(inputs, layout, [tokens.q])[0]
    assert_same_bits(got[0][:19], want[0][:19])
    assert not np.isfinite(got[0][19]).any()


def test_sinks_take_their_share_and_a_sink_of_minus_infinity_takes_none():
    tokens, sinks = sequence("t", 40), np.array([0.5, -2.0, 3.0, 0.0], F)
    out, lse = baseline(tokens, "f32", "f32")
    with_sinks, lse_sinks = baseline(tokens, "f32", "f32", sinks=sinks)
    share = 1 / (1 + np.exp(sinks - lse.astype(float) * np.log(2)))
    np.testing.assert_allclose(with_sinks, out * share[..., None], rtol=0, atol=2e-6)
    np.testing.assert_allclose(lse_sinks, np.logaddexp2(lse.astype(float), sinks / np.log(2)), rtol=0, atol=1e-5)
    none = baseline(tokens, "f32", "f32", sinks=np.full(4, -np.inf, F))
    assert_same_bits(none[0], out)
    assert_same_bits(none[1], lse)


def test_soft_cap_bounds_the_logits():
    x = np.array([[-1e30, 0, 1e30, 40]], F)
    y = run("softmax", x, soft_cap=2.0).astype(float)
    np.testing.assert_allclose(np.log(y / y[0, 1]), [[-2, 0, 2, 2]], atol=1e-6)


def test_new_tokens_are_right_aligned():
    """indptr [0, 1, 3, 6, 10], lengths 5: positions 4 | 3, 4 | 2, 3, 4 | 1, 2, 3, 4."""
    case = append_case("example", lengths=(5, 5, 5, 5), new=(1, 2, 3, 4))
    assert append_inputs(None, case, Stream("x"))["positions"].tolist() == [4, 3, 4, 2, 3, 4, 1, 2, 3, 4]
    batch, layout = [sequence(f"s{b}", 5) for b in range(4)], Layout(k="f32", v="f32")
    inputs = stored(layout, batch)
    inputs["k_cache"][:] = 0
    inputs["v_cache"][:] = np.arange(16, dtype=F)[:, None, None]  # a slot's number: means tell what was seen
    got = attend(inputs, layout, [s.q[-n:] for s, n in zip(batch, (1, 2, 3, 4), strict=True)])
    last_seen = [2 * out[:, 0, 0] for out, _ in got]
    assert [x.tolist() for x in last_seen] == [[4], [3, 4], [2, 3, 4], [1, 2, 3, 4]]


def test_mla_values_are_the_first_part_of_the_keys():
    inputs = inputs_of("paged_attention", "mla")
    split = dict(inputs, k_cache=inputs["k_cache"][:, :, None], v_cache=inputs["k_cache"][:, :, None, :512].copy())
    assert_same_bits(run("paged_attention", **inputs), run("paged_attention", **split))


def test_int8_codes_round_half_to_even():
    x = np.zeros((1, 32), F)
    x[0, :8] = [127, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 3.5]
    codes, scales = run("quantize_q8", x)
    assert codes[0, :8].tolist() == [127, 0, 2, 2, 0, -2, -2, 4]
    assert scales[0, 0] == F(127) * F(1 / 127)


@pytest.mark.parametrize(("amax", "alive"), [(2.0**-43, True), (np.nextafter(F(2.0**-43), F(0)), False), (0, False)])
def test_blocks_below_the_smallest_amax_are_zero(amax, alive):
    codes, scales = run("quantize_q8", np.full((1, 32), amax, F))
    assert (codes == (127 if alive else 0)).all()
    assert (scales > 0).all() == alive


def cached(fmt: str, row: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(scale [nb], codes [nb, 32]) of one row of keys as the cache stores it."""
    inputs = {n: poisoned(fmt, (1, 1, 1, -(-len(row) // 32) * 32)) for n in ("k_cache", "v_cache")}
    x, zero, one = np.array(row, F)[None, None], np.zeros(1, np.int32), np.ones(1, np.int32)
    run("append_paged_kv_cache", x, x, zero, zero, kv_last_page_len=one, **inputs)
    return split_blocks(inputs["k_cache"].data[0, 0, 0], fmt)


@pytest.mark.parametrize("fmt", ["q8_0", "q4_0"])
def test_quantized_cache_edges(fmt):
    scale, codes = cached(fmt, np.zeros(32))
    assert (scale == 0).all()
    assert (codes == 0).all()
    scale, codes = cached(fmt, np.full(40, 3.0))  # 24 places of padding
    assert (codes[1, 8:] == 0).all()
    scale, _ = cached(fmt, np.full(32, 1e-9))  # the scale rounds to zero in float16: worth 0, not an error
    assert (scale == 0).all()
    largest = 65504 * (127 if fmt == "q8_0" else 8)
    scale, _ = cached(fmt, np.full(32, largest))
    assert np.abs(scale) == 65504


def test_q4_0_scale_takes_the_sign_of_the_first_extreme_and_the_opposite_saturates():
    for sign in (1, -1):
        row = np.zeros(32)
        row[[3, 5]] = 2 * sign, -2 * sign
        scale, codes = cached("q4_0", row)
        assert scale[0] == -0.25 * sign
        assert codes[0, [3, 5]].tolist() == [-8, 7]


def test_operands_below_2_to_the_minus_50_are_zero_and_float16_keeps_its_denormals():
    weight = np.ones((1, 4), F)
    x = np.array([[2.0**-50], [2.0**-51]], F).repeat(4, axis=1)
    assert run("gemm", x, weight.astype(ml_dtypes.bfloat16)).ravel().tolist() == [2.0**-48, 0]
    assert run("gemm", np.full((1, 4), 2.0**-24, F), weight.astype(np.float16)) == 2.0**-22
    assert run("gemm", x, weight).ravel().tolist() == [2.0**-48, 0]


@pytest.mark.parametrize(
    ("value", "fmt", "want"),
    [
        (1 + 2.0**-11, "f16", 1),
        (1 + 3 * 2.0**-11, "f16", 1 + 2.0**-9),
        (1 + 2.0**-8, "bf16", 1),
        (1 + 3 * 2.0**-8, "bf16", 1 + 2.0**-6),
        (65520, "f16", np.inf),
        (2.0**-25, "f16", 0),
    ],
)
def test_cast_rounds_half_to_even(value, fmt, want):
    assert float(run("cast", np.array([value], F), format=fmt)[0]) == want


@pytest.mark.parametrize("rotary", [16, 8])
def test_interleaved_rope_is_a_permutation_of_half_split_rope(rotary):
    x, pos, table = Stream("x").normal((5, 3, 16)), np.arange(5, dtype=np.int32) * 7, rope_table(64, rotary)
    order = np.arange(16)
    order[:rotary] = np.arange(rotary).reshape(2, -1).T.ravel()  # 0, R, 1, R + 1, …
    interleaved = run("rope", np.ascontiguousarray(x[..., order]), pos, table, interleave=True)
    assert_same_bits(np.ascontiguousarray(run("rope", x, pos, table)[..., order]), interleaved)


TABLES = {
    "plain": {"theta": 10000.0},
    "linear": {"theta": 10000.0, "scaling": "linear", "factor": 4.0},
    "llama31": {"theta": 5e5, "scaling": "llama31", "factor": 8.0},
}


@pytest.mark.parametrize("name", TABLES)
def test_rope_tables_are_the_true_sines_within_an_ulp(name):
    """Against 50 digits. Close to a zero the float64 angle itself limits: 2^-35 at positions below 2^17."""
    options, rotary, num_positions = TABLES[name], 128, 131072
    table = rope_table(num_positions, rotary, **options)
    picks = zip(Stream("p").integers(0, num_positions, (300,)), Stream("i").integers(0, 64, (300,)), strict=True)
    with mpmath.workdps(50):
        for position, i in picks:
            f = mpmath.mpf(options["theta"]) ** (-mpmath.mpf(2 * int(i)) / rotary)
            if name == "linear":
                f = f / 4
            if name == "llama31":
                smooth = min(max((8192 * f / (2 * mpmath.pi) - 1) / 3, 0), 1)
                f = (1 - smooth) * f / 8 + smooth * f
            for got, want in zip(
                table[position, i], (mpmath.cos(f * int(position)), mpmath.sin(f * int(position))), strict=True
            ):
                ulp = float(np.spacing(np.abs(F(want))))
                assert abs(float(got) - want) <= max(ulp, 2.0**-35), (position, i)


def test_merging_two_halves_gives_attention_over_the_whole():
    """Within float32 of the direct sum: 16 roundings of values of size one."""
    tokens, layout = sequence("t", 60), Layout(k="f32", v="f32")
    q = tokens.q[-1:]
    whole = attend(stored(layout, [tokens]), layout, [q])[0]
    halves = [type(tokens)(tokens.q[a:b], tokens.k[a:b], tokens.v[a:b]) for a, b in ((0, 23), (23, 60))]
    parts = [attend(stored(layout, [h]), layout, [q])[0] for h in halves]
    for got, want in zip(run("merge_state", *parts[0], *parts[1]), whole, strict=True):
        np.testing.assert_allclose(got, want, rtol=0, atol=16 * 2.0**-24 * 4)


@pytest.mark.parametrize("empty", ["a", "b"])
def test_merging_with_an_empty_state_returns_the_other(empty):
    v, s = Stream("v").normal((3, HEADS * GROUP, 8)), Stream("s").normal((3, HEADS * GROUP))
    none = np.zeros_like(v), np.full_like(s, -np.inf)
    got_v, got_s = run("merge_state", *(none if empty == "a" else (v, s)), *((v, s) if empty == "a" else none))
    assert (np.abs(got_v - v) <= np.spacing(np.abs(v))).all()
    assert_same_bits(got_s, s)


def test_storage_of_a_view_is_the_cache_itself():
    cache = poisoned("q8_0", (2, 16, 1, 32))
    assert np.shares_memory(storage(cache[:1]), cache.data)
