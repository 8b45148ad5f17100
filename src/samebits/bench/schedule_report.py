"""Simulated policies side by side: as a table for people, as figures for programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from samebits.bench.outcome import Outcome
from samebits.bench.report import number
from samebits.bench.simulate import Cost, Room


@dataclass(frozen=True)
class Figure:
    """One row: what it is called in a table and in JSON, and where it comes from."""

    label: str
    key: str
    of: Callable[[Outcome], float]
    starts_group: bool = False


FIGURES = (
    Figure("worst decode stall, ms", "gap_worst_ms", lambda o: o.gap_ms(1)),
    Figure("  99th percentile", "gap_p99_ms", lambda o: o.gap_ms(0.99)),
    Figure("  95th", "gap_p95_ms", lambda o: o.gap_ms(0.95)),
    Figure("  median", "gap_p50_ms", lambda o: o.gap_ms(0.5)),
    Figure("worst time to first token, ms", "first_token_worst_ms", lambda o: o.first_token_ms(1), True),
    Figure("  95th percentile", "first_token_p95_ms", lambda o: o.first_token_ms(0.95)),
    Figure("  median", "first_token_p50_ms", lambda o: o.first_token_ms(0.5)),
    Figure("new tokens/s", "tokens_per_second", lambda o: o.tokens_per_second, True),
    Figure("seconds until all is answered", "seconds", lambda o: o.seconds),
    Figure("steps", "num_steps", lambda o: o.num_steps),
    Figure("preemptions", "num_preemptions", lambda o: o.num_preemptions),
    Figure("prompt tokens", "num_prompt_tokens", lambda o: o.num_prompt_tokens, True),
    Figure("  found in the cache", "num_cached_tokens", lambda o: o.num_cached_tokens),
    Figure("guessed tokens", "num_drafted", lambda o: o.num_drafted, True),
    Figure("  right", "num_taken", lambda o: o.num_taken),
    Figure("pages", "num_pages", lambda o: o.num_pages),
    Figure("  held at most", "peak_pages", lambda o: o.peak_pages),
    Figure("  held on average", "mean_pages", lambda o: o.mean_pages),
)


def figures(outcome: Outcome) -> dict[str, float]:
    return {figure.key: figure.of(outcome) for figure in FIGURES}


def setting_lines(cost: Cost, room: Room) -> list[str]:
    """What was simulated, in words."""
    return [
        f"A step takes {cost.base_ms:g} ms, and {cost.decode_ms:g} ms per decode, {cost.prefill_ms:g} ms per prompt "
        f"token, {1000 * cost.pair_ms:g} us per position that a token attends to.",
        f"Room for {room.max_sequences} answers of at most {room.max_len} tokens, in pages of {room.page_size}.",
    ]


def print_outcomes(console: Console, outcomes: Sequence[Outcome], title: str, notes: Sequence[str]) -> None:
    table = Table(title=title)
    table.add_column("prefill budget")
    for outcome in outcomes:
        table.add_column(outcome.name, justify="right")
    for figure in FIGURES:
        if figure.starts_group:
            table.add_section()
        table.add_row(figure.label, *(number(figure.of(outcome)) for outcome in outcomes))
    console.print(table)
    for line in ("A decode stall is the time between two tokens of one answer.", *notes):
        console.print(line, highlight=False, soft_wrap=True)
