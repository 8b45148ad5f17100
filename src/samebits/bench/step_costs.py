"""What a step costs, from what `samebits bench model` measured."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from samebits.bench.measured_rows import CHUNK_TOKENS
from samebits.bench.simulate import DECODES_APART, MAX_MS, Cost
from samebits.core.errors import BadInput

MAX_BYTES = 16 << 20
NEEDED = "a file of `samebits bench model --output FILE` with a prompt, a decode, one after many tokens, and a batch"
NUM_PARTS = 4  # base, decode, prefill, pair


def measured_cost(path: Path) -> Cost:
    """The cost of steps that comes nearest to all rows of a measurement; BadInput for a file that has too little."""
    try:
        with path.open("rb") as file:
            rows = json.loads(file.read(MAX_BYTES))["rows"]
        parts, times_ms = zip(*map(_equation, rows), strict=True)
    except OSError as error:
        raise BadInput("bench", "--cost", f"{path}: {error.strerror}", NEEDED) from error
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise BadInput("bench", "--cost", f"{path.name}, which is something else", NEEDED) from error
    return _fitted(np.array(parts, float), np.array(times_ms, float), path.name)


def _equation(row: Mapping[str, Any]) -> tuple[tuple[float, ...], float]:
    """How often each part of the cost is in a row's time, and that time in milliseconds."""
    num_tokens, count, depth = (int(row[key]) for key in ("num_tokens", "num_sequences", "depth"))
    time_ms = 1000 * statistics.median(map(float, row["ours"]["seconds"]))
    if not 0 < time_ms < MAX_MS or min(num_tokens, count) < 1 or depth < 0:
        raise ValueError("a time, or a size, that no row has")
    if row["kind"] == "prefill":
        num_pairs = num_tokens * (num_tokens + 1) / 2
        return (-(-num_tokens // CHUNK_TOKENS), 0, num_tokens, num_pairs), time_ms
    num_apart = min(count, DECODES_APART)
    mean_positions = depth + 2 + (num_tokens - 1) / 2  # one step was made before, untimed
    parts = (1, num_apart, count - num_apart, count * mean_positions)
    return tuple(num_tokens * part for part in parts), time_ms


def _fitted(parts: np.ndarray, times_ms: np.ndarray, name: str) -> Cost:
    """Least squares of relative errors over costs of which none is negative: all sets of parts are tried."""
    if np.linalg.matrix_rank(parts) < NUM_PARTS:
        raise BadInput("bench", "--cost", f"{name} with {len(parts)} rows that do not tell costs apart", NEEDED)
    relative, best = parts / times_ms[:, None], (np.inf, np.zeros(NUM_PARTS))
    for size in range(1, NUM_PARTS + 1):
        for chosen in map(list, combinations(range(NUM_PARTS), size)):
            found = np.zeros(NUM_PARTS)
            found[chosen] = np.linalg.lstsq(relative[:, chosen], np.ones(len(parts)), rcond=None)[0]
            error = float(np.square(relative @ found - 1).sum())
            if found.min() >= 0 and found[0] > 0 and error < best[0]:
                best = error, found
    base, decode, prefill, pair = best[1].tolist()
    if base <= 0:
        raise BadInput("bench", "--cost", f"{name}, whose rows no cost explains", NEEDED)
    return Cost(base, decode, prefill, pair)
