"""Rows, rounds and ratios: who runs when, which setting is taken, what is divided by what."""

from __future__ import annotations

import pytest
from bench_sides import FakeSide

from samebits.bench.measured_rows import fitting, limits_for, numbers, rows_for
from samebits.bench.results import Row, RowResult, Spread, Timed
from samebits.bench.rounds import fastest_setting, measure_row
from samebits.core.errors import BadInput, Unavailable

DECODE = Row("decode", 32, num_sequences=4, depth=16)


def test_rows_follow_the_options() -> None:
    rows = rows_for(numbers("--prompts", "512, 64", 1), numbers("--depths", "0,7", 0), (8,), 32)
    labels = ["prefill 512", "prefill 64", "decode", "decode after 7", "decode, 8 sequences after 16"]
    assert [row.label for row in rows] == labels
    assert [row.tokens_timed for row in rows] == [512, 64, 32, 32, 256]
    assert [row.tokens_each for row in rows] == [512, 64, 33, 40, 49]
    limits = limits_for(rows, "q8_0", "f16")
    assert (limits.max_tokens, limits.max_sequences, limits.num_pages) == (512, 8, 32)
    assert (limits.max_positions, limits.k_format, limits.v_format) == (512, "q8_0", "f16")


@pytest.mark.parametrize("text", ["x", "1,,2", "-3", "0", "99999999999999999999", "1.5", "²"])
def test_a_list_of_numbers_is_checked(text: str) -> None:
    with pytest.raises(BadInput, match="--prompts"):
        numbers("--prompts", text, 1)


def test_rows_beyond_the_context_are_left_out_with_a_reason() -> None:
    kept, left_out = fitting(rows_for((64, 512), (), (), 1), 96)
    assert [row.label for row in kept] == ["prefill 64"]
    assert left_out == ("prefill 512: 512 tokens, and the model's context is 96",)
    with pytest.raises(BadInput, match="prefill 512"):
        fitting(rows_for((512,), (), (), 1), 96)
    with pytest.raises(BadInput, match="rows is missing"):
        fitting((), 96)


def test_sides_alternate_after_one_warm_up() -> None:
    calls: list[tuple[str, str]] = []
    ours, peer = FakeSide("ours", {"f16": 2.0}, calls), FakeSide("peer", {"a": 5.0, "b": 3.0, "c": 4.0}, calls)
    result = measure_row(DECODE, ours, [peer], repeats=2)
    tries = [("ours", "f16"), *[("peer", setting) for setting in "aabcb"]]
    assert calls == [*tries, *[("ours", "f16"), ("peer", "b")] * 2]
    assert result.peers[0].setting == "b"
    assert result.ratio(result.peers[0]) == Spread(1.5, 1.5, 1.5)


def test_ratio_rate_and_share_are_taken_round_by_round() -> None:
    ours, peer = Timed("ours", "", (1.0, 2.0, 4.0)), Timed("peer", "", (3.0, 2.0, 2.0))
    result = RowResult(DECODE, ours, (peer,), weight_bytes=1000, ceilings=(64e3, 32e3, 32e3))
    assert result.ratio(peer) == Spread(1.0, 0.5, 3.0)
    assert ours.rate(DECODE) == Spread(64.0, 32.0, 128.0)  # 4 sequences, 32 steps
    assert result.weight_rate == Spread(16e3, 8e3, 32e3)  # weights are read once a step, for all sequences
    assert result.of_ceiling == Spread(0.5, 0.25, 0.5)
    facts = result.as_json()
    assert facts["against"]["peer"]["ratio"] == {"median": 1.0, "low": 0.5, "high": 3.0}
    assert facts["ceiling"]["share"]["median"] == 0.5


def test_ceiling_is_read_in_every_round_of_a_decode_only() -> None:
    readings = iter([1.0, 2.0])
    ours = FakeSide("ours", {"": 1.0}, [])
    assert measure_row(DECODE, ours, [], 2, 10, lambda: next(readings)).ceilings == (1.0, 2.0)
    assert measure_row(Row("prefill", 8), ours, [], 2, 10, lambda: next(readings)).ceilings == ()


def test_a_setting_that_fails_is_passed_over_and_a_peer_without_any_is_reported() -> None:
    calls: list[tuple[str, str]] = []
    assert fastest_setting(FakeSide("peer", {"a": 1.0}, calls, refused="q4"), DECODE) == "a"
    with pytest.raises(Unavailable, match="peer: no q4"):
        fastest_setting(FakeSide("peer", {}, calls, refused="q4"), DECODE)
    result = measure_row(DECODE, FakeSide("ours", {"": 1.0}, calls), [FakeSide("peer", {}, calls, refused="q4")], 1)
    assert result.peers[0].reason == "peer: no q4"
    assert result.as_json()["against"]["peer"]["reason"] == "peer: no q4"


class ColdSide(FakeSide):
    """Loads its weights in the first call."""

    def seconds(self, row: Row, setting: str) -> float:
        is_cold = not self._calls
        return super().seconds(row, setting) + 10 * is_cold


@pytest.mark.parametrize("refused", ["", "q4"])
def test_the_first_setting_is_not_tried_cold(refused: str) -> None:
    side = ColdSide("peer", {"a": 1.0, "b": 2.0}, [], refused)
    assert fastest_setting(side, DECODE) == "a"


def test_a_side_with_one_setting_is_warmed_once() -> None:
    calls: list[tuple[str, str]] = []
    assert fastest_setting(FakeSide("ours", {"f16": 1.0}, calls), DECODE) == "f16"
    assert calls == [("ours", "f16")]
