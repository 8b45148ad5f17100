"""Equivalents of the ops on experts: other tokens, other choices of theirs, the same work in another order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from samebits.ops.equivalents import Equivalent, Results, kept_rows, spread_rows
from samebits.ops.expert_cases import laid_out
from samebits.ops.record import Op

PER_ROW = ("x", "codes", "scales")  # of a product: a row per token or per pair
PER_TOKEN = ("weights", "shared", "shared_gate")  # of combine
SIZES = (1, 2, 8, 33)


def has_pairs(inputs: dict[str, Any]) -> bool:
    """Whether a call's rows bring pairs of theirs along: those of a product with experts, and of combine."""
    return "pairs" in inputs or {"y", "weights"} <= inputs.keys()


def num_pairs(inputs: dict[str, Any]) -> int:
    return len(inputs["pairs"] if "pairs" in inputs else inputs["y"])


def num_rows(inputs: dict[str, Any]) -> int:
    """Rows that stay together: those of a product's activations, or combine's tokens."""
    return len(next(inputs[name] for name in (*PER_ROW, *PER_TOKEN) if name in inputs))


def choices(inputs: dict[str, Any]) -> np.ndarray:
    """int64 [rows, pairs of a row]: the expert of every pair of a product."""
    experts = np.zeros(len(inputs["pairs"]), np.int64)
    experts[inputs["pairs"]] = np.repeat(np.arange(len(inputs["seg_indptr"]) - 1), np.diff(inputs["seg_indptr"]))
    return experts.reshape(num_rows(inputs), -1)


def pairs_of(inputs: dict[str, Any], rows: np.ndarray) -> np.ndarray:
    """The numbers of these rows' pairs."""
    share = num_pairs(inputs) // num_rows(inputs)
    return (rows[:, None] * share + np.arange(share)).reshape(-1)


def of_rows(inputs: dict[str, Any], rows: np.ndarray, chosen: np.ndarray | None = None) -> dict[str, Any]:
    """The call on these rows, of which a product's choose the experts `chosen` [rows, pairs of a row], or their own."""
    cut = {name: inputs[name][rows] for name in (*PER_ROW, *PER_TOKEN) if inputs.get(name) is not None}
    if "pairs" in inputs:
        chosen = choices(inputs)[rows] if chosen is None else chosen
        return {**inputs, **cut, **laid_out(chosen, len(inputs["seg_indptr"]) - 1)}
    return {**inputs, **cut, "y": inputs["y"][pairs_of(inputs, rows)]}


def expert_equivalents(op: Op, inputs: dict[str, Any]) -> Iterator[Equivalent]:
    """Of a product: rows alone, repeated, reversed, beside others that choose other experts, and pairs in any order."""
    count = num_rows(inputs)
    if not count:
        return
    yield from _other_rows(inputs, count, pairs_of)
    kept, num_experts = kept_rows(count), len(inputs["seg_indptr"]) - 1
    mine, others = pairs_of(inputs, kept), (np.arange(count) + 1) % count
    others[kept] = kept
    named = f"all rows but {', '.join(map(str, kept))} replaced"
    for detail, chosen in (
        (f"{named}, with other choices", (choices(inputs)[others] + 1) % num_experts),
        (f"{named}, with the first row's choices", np.repeat(choices(inputs)[:1], count, axis=0)),
    ):
        chosen[kept] = choices(inputs)[kept]
        call = of_rows(inputs, others, chosen)
        yield _same_rows("neighbours", detail, call, mine)
    bounds = zip(inputs["seg_indptr"][:-1], inputs["seg_indptr"][1:], strict=True)
    backwards = np.concatenate([inputs["pairs"][start:stop][::-1] for start, stop in bounds])
    yield Equivalent("order", "each expert's pairs reversed", lambda run: run({**inputs, "pairs": backwards}))
    share = num_pairs(inputs) // count
    if share > 1:
        apart = {name: np.repeat(inputs[name], share, axis=0) for name in PER_ROW if name in inputs}
        yield Equivalent("batch-size", "a row for each pair", lambda run: run({**inputs, **apart}))


def combine_equivalents(op: Op, inputs: dict[str, Any]) -> Iterator[Equivalent]:
    """Tokens alone, repeated, reversed, and one beside others."""
    count = num_rows(inputs)
    if not count:
        return
    yield from _other_rows(inputs, count, lambda inputs, rows: rows)
    kept, others = kept_rows(count), (np.arange(count) + 1) % count
    others[kept] = kept
    detail = f"all tokens but {', '.join(map(str, kept))} replaced"
    yield _same_rows("neighbours", detail, of_rows(inputs, others), kept)


def _other_rows(inputs: dict[str, Any], count: int, results_of: Any) -> Iterator[Equivalent]:
    """Calls on other numbers of rows and in another order; results_of(inputs, rows) are the rows of their results."""
    chosen = [("batch-size", f"{size} rows instead of {count}", spread_rows(size, count)) for size in SIZES]
    chosen += [("batch-size", f"row {row} alone", np.array([row])) for row in (1, count - 1) if 0 < row < count]
    for check, detail, rows in (*chosen, ("order", "rows reversed", np.arange(count)[::-1])):
        call, wanted = of_rows(inputs, rows), results_of(inputs, rows)
        yield Equivalent(
            check,
            detail,
            lambda run, call=call: run(call),  # type: ignore[misc]
            lambda results, wanted=wanted: _picked(results, wanted),  # type: ignore[misc]
        )


def _same_rows(check: str, detail: str, call: dict[str, Any], rows: np.ndarray) -> Equivalent:
    return Equivalent(check, detail, lambda run: _picked(run(call), rows), lambda results: _picked(results, rows))


def _picked(results: Results, rows: np.ndarray) -> Results:
    return tuple(np.asarray(r)[rows] for r in results)
