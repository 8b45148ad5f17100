"""Which cases a run takes: those with names, rows drawn from the ops' spaces, or one that the command line states."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, islice
from random import Random
from typing import Any

from samebits.core.errors import BadInput, UnknownName
from samebits.ops import OPS, Op
from samebits.ops.record import Case
from samebits.ops.space import Row
from samebits.verify.draw import (
    FULL_OPERATIONS,
    QUICK_OPERATIONS,
    all_pairs,
    each_alone,
    each_class,
    large_rows,
    model_sizes,
    not_empty,
    pairs_of_settings,
)
from samebits.verify.graph_cases import GRAPH_CASES
from samebits.verify.model import FAR, GRAPH, RERUNS, SOAK, Task, is_drawn
from samebits.verify.soak import soak_case

# what the source documents call a dimension -> the names ops use for it; the first that the op has is meant
SIZE_NAMES: dict[str, tuple[str, ...]] = {
    "m": ("T", "rows"),
    "n": ("N", "K"),
    "k": ("k", "K"),
    "num_tokens": ("T", "rows"),
    "hidden_size": ("K", "D"),
    "intermediate_size": ("H", "N"),
    "vocab_size": ("V", "K"),
    "batch_size": ("B", "rows"),
    "num_heads": ("H",),
    "head_size": ("D",),
}
LARGEST_SIZE = 1 << 20
LARGE_ROWS = 4  # of a full run
QUICK_RERUNS, FULL_RERUNS = 4, 16  # rows whose executable runs several times
DECODE = "decode"  # a case of long sequences, to be run again over shorter ones
SMALL_OPERATIONS = QUICK_OPERATIONS >> 4


def tasks_for(
    backend: str,
    tiers: tuple[str, ...],
    *,
    op: str | None,
    case: str | None,
    dims: dict[str, str],
    full: bool,
    seed: int,
) -> list[Task]:
    """The tasks of a run; UnknownName or BadInput for a name, size or row that does not fit."""
    if op == GRAPH:
        return graph_tasks(backend, tiers, case, full, seed)
    ops = [OPS[op]] if op else list(OPS)
    if dims:
        if op is None or case is not None:
            raise BadInput("verify", "--" + next(iter(dims)), "a size", "--op, and no --case")
        sizes = {name: _size(name, text) for name, text in dims.items()}
        case_from_sizes(ops[0], sizes)
        return [Task(backend, ops[0].name, "sizes", tiers, seed, sizes)]
    if case is not None:
        if op is None:
            raise BadInput("verify", "--case", case, "--op as well")
        found = find_case(ops[0], case)
        return [Task(backend, ops[0].name, prefix_of(case) + found.id, tiers, seed, is_long=full)]
    graphs = graph_tasks(backend, tiers, None, full, seed) if op is None else []
    return [*graphs, *(task for o in ops for task in op_tasks(backend, tiers, o, full, seed))]


def graph_tasks(backend: str, tiers: tuple[str, ...], case: str | None, full: bool, seed: int) -> list[Task]:
    """Return tasks for graphs of several nodes: those of a quick or full run, or the one of that name."""
    names = [c.id for c in GRAPH_CASES]
    if case is not None and case not in names:
        raise UnknownName("graph", case, names)
    chosen = [c.id for c in GRAPH_CASES if (case is None and (full or not c.full)) or c.id == case]
    return [Task(backend, GRAPH, name, tiers, seed) for name in chosen]


def op_tasks(backend: str, tiers: tuple[str, ...], op: Op, full: bool, seed: int) -> list[Task]:
    """Named cases, then drawn ones: every class alone and among others, every pair of settings, in a full run all
    pairs of classes too; executables that run several times on some of both, and one that runs very often."""
    named = [c.id for c in op.cases if full or not c.full]
    again = [c.id for c in op.cases if c is op.cases[0] or c.id == DECODE]
    small = _small_ids(op, FULL_RERUNS if full else QUICK_RERUNS, seed)
    far = far_ids(op) if full else []
    cases = [*named, *drawn_ids(op, full, seed), *far, *(RERUNS + case for case in (*again, *small))]
    long = [SOAK + case for case in (soak_case(op).id, *(small if full else ()))]
    tasks = [Task(backend, op.name, case, tiers, seed) for case in cases]
    return [*tasks, *(Task(backend, op.name, case, tiers, seed, is_long=full) for case in long)]


def _small_ids(op: Op, count: int, seed: int) -> list[str]:
    """Names of the row in which everything is as usual, and of some cheap others."""
    if op.space is None:
        return []
    usual: Row = {f.name: f.usual for f in op.space.factors}
    rows = each_class(op.space, SMALL_OPERATIONS, Random(f"{seed}/{op.name}/small"))
    cheap = (row for row in rows if op.space.allows(row, SMALL_OPERATIONS))
    return [op.space.row_id(row) for row in (usual, *islice(cheap, count)) if op.space.fits(row)]


def drawn_ids(op: Op, full: bool, seed: int) -> list[str]:
    """Return the names of the rows that a seed draws, and of the op's corners."""
    if op.space is None:
        return []
    corners = map(op.space.parse, op.space.corners)
    dice = Random(f"{seed}/{op.name}")
    rounds: list[Iterator[Row]] = []
    if full:
        rounds = [large_rows(op.space, FULL_OPERATIONS, LARGE_ROWS, dice), all_pairs(op.space, FULL_OPERATIONS, dice)]
    rounds += [draw(op.space, QUICK_OPERATIONS, dice) for draw in (each_class, each_alone, model_sizes)]
    drawn = [*chain(*rounds), *corners]
    drawn += pairs_of_settings(op.space, tuple(drawn), QUICK_OPERATIONS, dice)
    drawn += not_empty(op.space, tuple(drawn), QUICK_OPERATIONS, Random(f"{seed}/{op.name}/not empty"))
    return list(dict.fromkeys(op.space.row_id(row) for row in drawn))


def far_ids(op: Op) -> list[str]:
    """Return the names of the cases of an op on a large cache."""
    return [FAR + find_case(op, op.space.far_row).id] if op.space and op.space.far_row else []


def preset_tasks(backend: str, tiers: tuple[str, ...], preset: str, seed: int) -> list[Task]:
    """The source documents' paged benchmark, for every op that has it."""
    if preset != "paged":
        raise BadInput("verify", "--preset", repr(preset), "'paged'")
    return [Task(backend, o.name, c.id, tiers, seed) for o in OPS for c in o.cases if c.id == "paged-benchmark"]


def _size(name: str, text: str) -> int:
    if not text.isdecimal() or int(text) > LARGEST_SIZE:
        raise BadInput("verify", f"--{name}", repr(text), f"a whole number up to {LARGEST_SIZE}")
    return int(text)


def prefix_of(case_id: str) -> str:
    """Return RERUNS, SOAK, FAR, or nothing."""
    return next((prefix for prefix in (RERUNS, SOAK, FAR) if case_id.startswith(prefix)), "")


def find_case(op: Op, case_id: str) -> Case:
    """The case of that name, or that a row such as "T=33,K=64" describes, whatever is to be done with it."""
    case_id = case_id.removeprefix(prefix_of(case_id))
    if op.space is not None and is_drawn(case_id):
        row = op.space.parse(case_id)
        return Case(op.space.row_id(row), **op.space.case(row))
    found = [c for c in op.cases if c.id == case_id]
    if not found:
        raise UnknownName(f"case of {op.name}", case_id, [c.id for c in op.cases])
    return found[0]


def case_of(task: Task) -> Case:
    """The case a task means."""
    op = OPS[task.op]
    return case_from_sizes(op, task.dims) if task.dims else find_case(op, task.case)


def case_from_sizes(op: Op, sizes: dict[str, int]) -> Case:
    """The op's first case with some of its sizes replaced."""
    base = op.cases[0]
    if not base.dims:
        return _cache_case(op, base, sizes)
    dims: dict[str, Any] = dict(base.dims)
    attrs = dict(base.attrs)
    for name, size in sizes.items():
        for target in SIZE_NAMES.get(name, (name,)):
            if target == "rows" and "..." in dims:
                dims["..."] = (size,)
            elif target in attrs and type(attrs[target]) is int:
                attrs[target] = size
            elif target in dims:
                dims[target] = size
            else:
                continue
            break
        else:
            known = sorted(n for n, targets in SIZE_NAMES.items() if any(t in dims or t == "rows" for t in targets))
            raise BadInput("verify", f"--{name}", "a size", f"one of {op.name}'s: {', '.join(known)}")
    return replace(base, id="sizes", dims=dims, attrs=attrs)


def _cache_case(op: Op, base: Case, sizes: dict[str, int]) -> Case:
    """A paged op: num_tokens, length, num_heads, num_kv_heads, head_size, page_size, batch_size."""
    extra = dict(base.extra)
    batch = sizes.get("batch_size", len(extra["lengths"]))
    length = sizes.get("length", max(sizes.get("num_tokens", 1), 40))
    tokens = min(sizes.get("num_tokens", 1), length)
    heads = sizes.get("num_kv_heads", sizes.get("num_heads", extra["heads"]))
    unknown = set(sizes) - {"batch_size", "length", "num_tokens", "num_heads", "num_kv_heads", "head_size", "page_size"}
    if unknown:
        known = "batch_size, head_size, length, num_heads, num_kv_heads, num_tokens, page_size"
        raise BadInput("verify", f"--{sorted(unknown)[0]}", "a size", f"one of {op.name}'s: {known}")
    if min(heads, sizes.get("head_size", 1), sizes.get("page_size", 1)) < 1:
        raise BadInput("verify", "a head or page size", 0, "1 or more")
    if "num_heads" in sizes and sizes["num_heads"] % heads:
        raise BadInput("verify", "--num_heads", sizes["num_heads"], f"a multiple of the {heads} KV heads")
    extra.update(heads=heads, lengths=(length,) * batch, page_size=sizes.get("page_size", extra["page_size"]))
    extra["head"] = extra["v_dim"] = sizes.get("head_size", extra["head"])
    counts = (tokens,) * batch
    if "queries" in extra:
        extra.update(queries=counts, group=max(1, sizes.get("num_heads", heads * extra["group"]) // max(heads, 1)))
        return replace(base, id="sizes", extra=extra, attrs={**base.attrs, "v_dim": extra["v_dim"]})
    return replace(base, id="sizes", extra={**extra, "new": counts})
