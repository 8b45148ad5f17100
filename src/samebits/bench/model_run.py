"""`samebits bench model`: footprint, then every row against ceiling and peers; the outcome as facts for programs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from samebits.backends.discovery import Found
from samebits.bench.ceiling import busy_line, ceiling_source, read_ceiling
from samebits.bench.footprint import Footprint, measure
from samebits.bench.measured_rows import fitting
from samebits.bench.ours import Ours, Settings, weight_bytes
from samebits.bench.peer import Peer
from samebits.bench.results import Row, RowResult
from samebits.bench.rounds import measure_row
from samebits.models.checkpoint import FileCheckpoint
from samebits.verify.provenance import environment

OpenPeers = Callable[[FileCheckpoint], Iterable[Peer]]
Progress = Callable[[str, int, int], None]  # what is being done, rows done, rows in all


@dataclass(frozen=True)
class ModelRun:
    """Everything a report needs."""

    settings: Settings
    found: Found
    tier: str
    repeats: int
    footprint: Footprint
    results: tuple[RowResult, ...]
    peer_facts: Mapping[str, Mapping[str, Any]]
    left_out: tuple[str, ...]
    fallbacks: tuple[str, ...]
    warning: str  # of what else was going on

    def as_json(self) -> dict[str, Any]:
        return {
            **asdict(self.settings),
            "numerics": self.tier,
            "repeats": self.repeats,
            "environment": environment(self.found),
            "footprint": {**asdict(self.footprint), "ratio": self.footprint.ratio},
            "ceiling_source": ceiling_source(),
            "peers": {name: dict(facts) for name, facts in self.peer_facts.items()},
            "rows": [result.as_json() for result in self.results],
            "left_out": list(self.left_out),
            "fallbacks": list(self.fallbacks),
            "warning": self.warning,
        }


def no_peers(checkpoint: FileCheckpoint) -> Iterable[Peer]:
    return ()


def _read_bytes_per_second(num_bytes: int, threads: int) -> float:
    return 1e9 * read_ceiling(num_bytes, threads)


def no_progress(what: str, done: int, total: int) -> None:
    """Nobody is looking."""


def bench_model(
    settings: Settings,
    rows: Sequence[Row],
    repeats: int,
    open_peers: OpenPeers = no_peers,
    progress: Progress = no_progress,
) -> ModelRun:
    """All rows that fit the model's context. Peers are closed at the end, whatever happens."""
    warning, checkpoint = busy_line(), settings.open()
    kept, left_out = fitting(tuple(rows), checkpoint.config.context_len)
    progress("load and memory", 0, len(kept))
    footprint = measure(settings)
    ours = Ours(settings, checkpoint, kept)
    results = []
    with ExitStack() as stack:
        progress("loading peers", 0, len(kept))
        peers = []
        for peer in open_peers(checkpoint):
            stack.callback(peer.close)
            peers.append(peer)
        for i, row in enumerate(kept):
            progress(row.label, i, len(kept))
            touched = weight_bytes(checkpoint, row.num_sequences)
            ceiling = partial(_read_bytes_per_second, touched, settings.threads)
            results.append(measure_row(row, ours, peers, repeats, touched, ceiling))
        facts = {peer.name: dict(peer.facts) for peer in peers}
    return ModelRun(
        settings,
        ours.found,
        ours.runner.tier.label,
        repeats,
        footprint,
        tuple(results),
        facts,
        left_out,
        ours.runner.fallbacks,
        warning,
    )
