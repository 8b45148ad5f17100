"""What a measurement speaks of: rows of work, sides that do it, and what their rounds gave."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Protocol

Kind = Literal["prefill", "decode", "serve"]


@dataclass(frozen=True)
class Row:
    """One piece of work: a prompt in an empty cache, steps of sequences that already hold `depth` tokens each, or
    prompts that come together and are all continued.

    num_tokens   of the prompt, or steps that each sequence takes; a decode begins with one more step, not timed
    prompt_lens  of a serve, tokens of each prompt
    """

    kind: Kind
    num_tokens: int
    num_sequences: int = 1
    depth: int = 0
    prompt_lens: tuple[int, ...] = ()

    @property
    def label(self) -> str:
        if self.kind == "serve":
            return f"serve {self.num_sequences} prompts of {min(self.prompt_lens)} to {max(self.prompt_lens)} tokens"
        if self.kind == "prefill":
            return f"prefill {self.num_tokens}"
        what = "decode" if self.num_sequences == 1 else f"decode, {self.num_sequences} sequences"
        return f"{what} after {self.depth}" if self.depth else what

    @property
    def tokens_timed(self) -> int:
        return self.num_tokens * self.num_sequences

    @property
    def tokens_each(self) -> int:
        """The longest that a sequence gets."""
        if self.kind == "serve":
            return max(self.prompt_lens) + self.num_tokens
        return self.num_tokens if self.kind == "prefill" else self.depth + 1 + self.num_tokens


class Side(Protocol):
    """An engine with a model in it. `settings` are ways to run a row, to be tried out."""

    @property
    def name(self) -> str: ...

    @property
    def settings(self) -> Sequence[str]: ...

    def seconds(self, row: Row, setting: str) -> float:
        """Does the row once; Unavailable with the reason where this side cannot."""
        ...


@dataclass(frozen=True)
class Spread:
    """The middle of some values, and their ends."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(statistics.median(values), min(values), max(values))


@dataclass(frozen=True)
class Timed:
    """A side's seconds for a row, round by round; none, and the reason, where it could not."""

    side: str
    setting: str
    seconds: tuple[float, ...]
    reason: str = ""

    def rate(self, row: Row) -> Spread:
        """Tokens per second."""
        return Spread.of([row.tokens_timed / s for s in self.seconds])


@dataclass(frozen=True)
class RowResult:
    """A row's rounds: ours, each peer's, and the read ceiling in bytes per second beside a decode's."""

    row: Row
    ours: Timed
    peers: tuple[Timed, ...] = ()
    weight_bytes: int = 0  # that one step reads
    ceilings: tuple[float, ...] = field(default=())

    def ratio(self, peer: Timed) -> Spread:
        """How many times as fast we were, round by round."""
        return Spread.of([theirs / ours for theirs, ours in zip(peer.seconds, self.ours.seconds, strict=True)])

    @property
    def weight_rate(self) -> Spread | None:
        """Bytes of weights per second of a decode."""
        if not self.ceilings:
            return None
        return Spread.of([self.weight_bytes * self.row.num_tokens / s for s in self.ours.seconds])

    @property
    def of_ceiling(self) -> Spread | None:
        """The share of the read ceiling that this is, round by round."""
        if not self.ceilings:
            return None
        touched = self.weight_bytes * self.row.num_tokens
        return Spread.of([touched / s / c for s, c in zip(self.ours.seconds, self.ceilings, strict=True)])

    def as_json(self) -> dict[str, Any]:
        ceiling = None
        if (share := self.of_ceiling) and (rate := self.weight_rate):
            ceiling = {
                "weight_bytes": self.weight_bytes,
                "weight_bytes_per_second": asdict(rate),
                "read_bytes_per_second": asdict(Spread.of(self.ceilings)),
                "share": asdict(share),
            }
        return {
            "row": self.row.label,
            **asdict(self.row),
            "ours": self._timed(self.ours),
            "ceiling": ceiling,
            "against": {
                p.side: {**self._timed(p), "ratio": asdict(self.ratio(p)) if p.seconds else None} for p in self.peers
            },
        }

    def _timed(self, timed: Timed) -> dict[str, Any]:
        rate = asdict(timed.rate(self.row)) if timed.seconds else None
        facts = {"setting": timed.setting, "seconds": list(timed.seconds), "tokens_per_second": rate}
        return facts if timed.seconds else {**facts, "reason": timed.reason}
