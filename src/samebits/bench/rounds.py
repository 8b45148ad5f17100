"""Ours and the peers in turn, round by round, so that a noisy machine hits them alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from samebits.bench.results import Row, RowResult, Side, Timed
from samebits.core.errors import Unavailable

BRIEF_TOKENS = 8  # steps of a decode that only finds the fastest setting
BRIEF_SHARE = 4  # and prompts a fourth as long
SETTLE_SECONDS = 0.05  # until the threads of the side before have stopped spinning


def _once(side: Side, row: Row, setting: str) -> float:
    time.sleep(SETTLE_SECONDS)
    return side.seconds(row, setting)


def fastest_setting(side: Side, row: Row) -> str:
    """Return the setting that does the row soonest, each tried once and none cold; the side is warm in it then. Raise
    Unavailable if none works."""
    brief = row
    if row.kind != "prefill":
        prompt_lens = tuple(-(-n // BRIEF_SHARE) for n in row.prompt_lens)
        brief = replace(row, num_tokens=min(row.num_tokens, BRIEF_TOKENS), prompt_lens=prompt_lens)
    taken: dict[str, float] = {}
    reasons = []
    for setting in side.settings:
        try:
            if not taken and len(side.settings) > 1:
                _once(side, brief, setting)  # weights come from the disk and threads start: not this setting's fault
            taken[setting] = _once(side, brief, setting)
        except Unavailable as error:
            reasons.append(str(error))
    if not taken:
        raise Unavailable("; ".join(dict.fromkeys(reasons)) or f"{side.name} has no setting to run")
    fastest = min(taken, key=taken.__getitem__)
    if fastest != list(taken)[-1]:
        _once(side, brief, fastest)
    return fastest


def measure_row(
    row: Row,
    ours: Side,
    peers: Sequence[Side],
    repeats: int,
    weight_bytes: int = 0,
    read_ceiling: Callable[[], float] | None = None,
) -> RowResult:
    """`repeats` rounds of one row. A decode with a ceiling reads it in every round, in bytes per second."""
    chosen: list[tuple[Side, str]] = [(ours, fastest_setting(ours, row))]
    failed = []
    for peer in peers:
        try:
            chosen.append((peer, fastest_setting(peer, row)))
        except Unavailable as error:
            failed.append(Timed(peer.name, "", (), str(error)))
    seconds: list[list[float]] = [[] for _ in chosen]
    ceilings = []
    for _ in range(repeats):
        for (side, setting), taken in zip(chosen, seconds, strict=True):
            taken.append(_once(side, row, setting))
        if read_ceiling is not None and row.kind == "decode":
            ceilings.append(read_ceiling())
    timed = [Timed(s.name, setting, tuple(taken)) for (s, setting), taken in zip(chosen, seconds, strict=True)]
    return RowResult(row, timed[0], (*timed[1:], *failed), weight_bytes, tuple(ceilings))
