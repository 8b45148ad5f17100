"""Costs of steps from measurements: what made the rows is found again, and files that say too little are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from samebits.bench.simulate import Cost
from samebits.bench.step_costs import measured_cost
from samebits.core.errors import BadInput


def row(kind: str, num_tokens: int, num_sequences: int = 1, depth: int = 0, ms: float = 1.0) -> dict[str, Any]:
    seconds = [ms / 1000, ms / 1000, 9.0]  # the median counts
    sizes = {"num_tokens": num_tokens, "num_sequences": num_sequences, "depth": depth}
    return {"kind": kind, **sizes, "ours": {"seconds": seconds}}


def rows_of(cost: Cost) -> list[dict[str, Any]]:
    """What `bench model` would measure where steps cost exactly this."""
    rows = []
    for n in (128, 512):
        rows.append(row("prefill", n, ms=cost.base_ms + n * cost.prefill_ms + n * (n + 1) / 2 * cost.pair_ms))
    for count, depth in ((1, 0), (1, 2048), (8, 16), (40, 16)):
        apart = min(count, 32)
        own_ms = cost.base_ms + apart * cost.decode_ms + (count - apart) * cost.prefill_ms
        num_pairs = count * sum(depth + 2 + step for step in range(32))
        rows.append(row("decode", 32, count, depth, 32 * own_ms + cost.pair_ms * num_pairs))
    return rows


def written(folder: Path, content: Any) -> Path:
    path = folder / "bench.json"
    path.write_text(json.dumps(content))
    return path


@pytest.mark.parametrize("cost", [Cost(), Cost(9.8, 1.33, 1.14, 0.0028), Cost(1.75, 0.177, 0.069, 0.0)])
def test_the_costs_that_made_the_rows_are_found(tmp_path: Path, cost: Cost) -> None:
    found = measured_cost(written(tmp_path, {"rows": rows_of(cost)}))
    assert vars(found) == pytest.approx(vars(cost), rel=1e-6, abs=1e-9)


def test_no_cost_is_negative_whatever_was_measured(tmp_path: Path) -> None:
    rows = rows_of(Cost())
    rows[3]["ours"]["seconds"] = [rows[2]["ours"]["seconds"][0] / 2]  # after many tokens, faster than after none
    found = measured_cost(written(tmp_path, {"rows": rows}))
    assert found.pair_ms == 0
    assert min(vars(found).values()) >= 0


@pytest.mark.parametrize(
    "content",
    [
        {},
        [],
        {"rows": []},
        {"rows": rows_of(Cost())[:2]},
        {"rows": [*rows_of(Cost()), {"kind": "decode"}]},
        {"rows": [*rows_of(Cost()), row("decode", 32, ms=-1)]},
        {"rows": [*rows_of(Cost()), row("decode", 0)]},
    ],
)
def test_a_file_that_says_too_little_is_refused(tmp_path: Path, content: Any) -> None:
    with pytest.raises(BadInput, match="--cost"):
        measured_cost(written(tmp_path, content))


def test_no_file_and_no_json_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="No such file"):
        measured_cost(tmp_path / "absent.json")
    (tmp_path / "text.json").write_bytes(b"\xff" * 20)
    with pytest.raises(BadInput, match="something else"):
        measured_cost(tmp_path / "text.json")
