"""Whatever a kernel may branch on varies by itself: attributes, optional inputs, formats, sizes at thresholds.

Each of them has a factor that changes it alone, and every two settings meet in a quick run: a kernel that ignores one,
or takes it from another, has a case to fail.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import combinations
from random import Random
from typing import Any

import pytest
from hunt import quick_tasks
from kernel_thresholds import MEANINGS, OTHER_NAMES, Threshold, compared_names, thresholds

from samebits.ops import OPS, Op, bind, make_inputs
from samebits.ops.record import Case
from samebits.ops.space import Choice, Factor, Row, Space, setting, size
from samebits.verify.draw import QUICK_OPERATIONS, pairs_of_settings
from samebits.verify.model import is_drawn
from samebits.verify.select import prefix_of

OP_NAMES = [op.name for op in OPS]
Item = tuple[str, str]  # such as ("attribute", "eps")
CHEAP = 1 << 17  # operations of a row's reference
NUM_CLASSES = 3  # of a factor, which tell enough
SMALL = {"length": 8, "heads": 1}  # sizes in place of the usual ones; a latent cache has one head
# Inputs that the definition takes together or not at all.
TOGETHER = ({"kv_indptr", "kv_indices"}, {"counts", "repetition", "presence", "frequency"}, {"value", "v_cache"})
SAME_FORMAT = {"concat_columns": {"a", "b"}}  # by definition
# Beyond these sizes a kernel refuses the call and says why: there is no second way to take.
REFUSED_BEYOND = {
    ("triton/recurrent/launch.py", "width"),
    ("triton/rows/norm.py", "width"),
    ("triton/select/route.py", "num_experts"),
    ("triton/select/route.py", "top_k"),
    ("wgsl/attention/op.py", "head_size"),
    ("wgsl/rows/norm.py", "width"),
    ("wgsl/select/parts.py", "length"),
    ("wgsl/select/top_k.py", "k"),
}
# Names that mean something else in these files, and ops that reach a file without its branch.
NOT_COMPARED = {("triton/products/blocks/many/experts.py", "width"), ("cuda/products/shapes.py", "head_gemm")}


@cache
def quick_rows(name: str) -> tuple[Row, ...]:
    """Return the rows that a quick run draws for an op."""
    space = OPS[name].space
    assert space is not None
    return tuple(space.parse(t.case) for t in quick_tasks(name) if is_drawn(t.case) and not prefix_of(t.case))


def call_of(op: Op, row: Row) -> dict[Item, Any]:
    """Return what a kernel may branch on in the call of a row: attributes, inputs that are given, formats."""
    assert op.space is not None
    bound = bind(op, **make_inputs(op, Case("row", **op.space.case(row))))
    attrs = {("attribute", name): value for name, value in bound.attrs.items()}
    inputs = {("input", t.name): t.name in bound.specs for t in op.inputs}
    return {**attrs, **inputs, **{("format", name): spec.format for name, spec in bound.specs.items()}}


def stated(op: Op) -> set[Item]:
    """Return the attributes, optional inputs and formats that an op leaves open."""
    attrs = {("attribute", attr.name) for attr in op.attrs}
    inputs = {("input", t.name) for t in op.inputs if t.optional}
    return attrs | inputs | {("format", t.name) for t in op.inputs if len(t.formats) > 1}


def tied(op: Op, item: Item) -> set[Item]:
    """Return the items that the definition ties to this one, and itself."""
    kind, name = item
    groups = TOGETHER if kind == "input" else (SAME_FORMAT.get(op.name, set()),) if kind == "format" else ()
    return {item, *((kind, other) for group in groups if name in group for other in group)}


def rows_around(space: Space, base: Row, factor: Factor) -> list[Row]:
    """Return the cheap rows that differ from `base` in one factor at most: one for each of its classes."""
    values = [c.label if isinstance(c, Choice) else c.low for c in factor.classes]
    return [
        row for row in ({**base, factor.name: value} for value in values) if space.allows(row, QUICK_OPERATIONS << 2)
    ]


def bases(op: Op) -> Iterator[Row]:
    """Yield rows to vary: one in which all is as usual, each with one other setting, and those of a quick run."""
    assert op.space is not None
    usual: Row = {f.name: SMALL.get(f.name, f.usual) for f in op.space.factors}
    yield usual
    for factor in op.space.settings:
        yield from rows_around(op.space, usual, factor)
    yield from (row for row in quick_rows(op.name) if op.space.allows(row, CHEAP))


def own_factors(op: Op) -> dict[Item, Factor]:
    """Return for each item a setting, or for an attribute a size, that changes it and nothing else."""
    assert op.space is not None
    missing, found = stated(op), dict[Item, Factor]()
    sizes = [f for f in op.space.factors if not isinstance(f.classes[0], Choice)]
    for number, base in enumerate(bases(op)):
        if not missing:
            break
        for factor in (*op.space.settings, *(() if number else sizes)):
            calls = [call_of(op, row) for row in rows_around(op.space, base, factor)[:NUM_CLASSES]]
            for one, other in combinations(calls, 2):
                changed = {item for item in one.keys() & other.keys() if one[item] != other[item]}
                for item in [i for i in missing & changed if changed <= tied(op, i)]:
                    found[item] = factor
                    missing.discard(item)
    return found


@pytest.mark.parametrize("name", OP_NAMES)
def test_every_attribute_optional_input_and_format_varies_alone(name: str) -> None:
    op = OPS[name]
    assert own_factors(op).keys() == stated(op)


@pytest.mark.parametrize("name", OP_NAMES)
def test_every_two_settings_meet_in_a_quick_run(name: str) -> None:
    space = OPS[name].space
    assert space is not None
    met = {pair for row in quick_rows(name) for pair in space.pairs_of(row)}
    for a, b in combinations(space.settings, 2):
        pairs = [(a.name, x.label, b.name, y.label) for x in a.classes for y in b.classes]
        excluded = [pair for pair in pairs if not space.fits(dict([pair[:2], pair[2:]]))]
        assert set(pairs) - met <= set(excluded)


def test_settings_that_exclude_each_other_cost_no_row_and_others_meet() -> None:
    """A space of three settings, one of which only one value of another allows."""
    factors = (
        size("n", 64, usual=3),
        setting("scale", "1", "2", "3"),
        setting("limit", "off", "low", "high"),
        setting("kind", "plain", "clamped"),
    )
    space = Space(
        factors,
        lambda row: {"dims": {}},
        lambda row: int(row["n"]),
        lambda row: row.get("limit", "off") == "off" or row.get("kind", "clamped") == "clamped",
    )
    rows = list(pairs_of_settings(space, (), QUICK_OPERATIONS, Random(0)))
    met = {pair for row in rows for pair in space.pairs_of(row) if pair[0] != "n"}
    assert len(met) == 3 * 3 + 3 * 2 + 3 * 2 - 2  # a limit beside "plain" is left out, twice
    assert all(space.fits(row) for row in rows)
    assert len(rows) <= 12
    assert list(pairs_of_settings(space, rows, QUICK_OPERATIONS, Random(1))) == []


def test_a_quick_run_has_sizes_on_both_sides_of_each_threshold(subtests: pytest.Subtests) -> None:
    """One test for all: every test process would read all kernels to collect one for each."""
    for file, name, most in sorted(found := {(t.file, t.name, t.most): t for t in thresholds()}):
        with subtests.test(f"{file}:{name}:{most}"):
            has_sizes_on_both_sides(found[file, name, most])


def has_sizes_on_both_sides(threshold: Threshold) -> None:
    file, name = threshold.file, threshold.name
    for op in threshold.ops:
        sizes = {threshold.size(OPS[op], row) for row in quick_rows(op)} - {None}
        if not sizes or (file, name) in NOT_COMPARED or (file, op) in NOT_COMPARED:
            continue
        assert any(s is not None and s <= threshold.most for s in sizes), f"{op}: none up to {threshold.most}"
        if (file, name) not in REFUSED_BEYOND:
            assert any(s is not None and s > threshold.most for s in sizes), f"{op}: none above {threshold.most}"


def test_whatever_kernels_compare_has_a_meaning_or_is_no_size() -> None:
    """A kernel that branches on a size under a new name fails here until kernel_thresholds.py says what it means."""
    names = compared_names()
    assert {name: file for name, file in names.items() if name not in {*MEANINGS, *OTHER_NAMES}} == {}
    assert OTHER_NAMES.keys() <= names.keys()


def test_thresholds_are_found_in_every_language() -> None:
    found = list(thresholds())
    assert {t.file.partition("/")[0] for t in found} == {"cpp", "cuda", "triton", "wgsl"}
    assert {t.name for t in found} == set(MEANINGS)
    assert {(file, name) for file, name in REFUSED_BEYOND} <= {(t.file, t.name) for t in found}
