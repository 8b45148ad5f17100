"""Offsets and grids of every kernel, at sizes beyond int32: launches are noted, and their code is looked through.

No such tensor is ever made. A call's launchers run on tensors without memory; each kernel that they ask for is read in
Triton's IR with the launch's own numbers (offset_ranges.py).
"""

from __future__ import annotations

import linecache
from pathlib import Path

import pytest
from huge_calls import GROUPS
from huge_launches import Launched, intermediate, kernels_of_call, launches
from offset_ranges import arguments_of, parsed, wide_offsets

import samebits
from samebits.kernels.triton.lib.devices import parsed_facts
from samebits.kernels.triton.lib.sizes import LARGEST_INT32, MAX_PROGRAMS_YZ

ROOM = Path(samebits.__file__).parent / "kernels" / "triton"
GPUS = {"rows": "sm_90/132", "select": "sm_90/132", "caches": "sm_90/132", "recurrent": "sm_80/108"}
# int32 that hold their offsets although nothing in the code says so: how the line begins, and what bounds it.
PROVEN = {
    "p = at + tl.arange(0, PARTS)": "programs, a few on each multiprocessor",
    "row = ((2 * p + tl.where(p == low, 1, 0)) * BLOCK_M)": "programs, a few on each multiprocessor",
    "rows = tl.where(count * GROUP <= most_rows,": "rows of a batch: queries times heads, which q has",
    "q_base = q_ptr + row.to(tl.int64) * q_row": "part is one of the query heads",
    "nth = first + i * 32 + tl.arange(0, 32)": "stretches of one sequence, a program each",
    "scores += (tl.load(s_ptr + run[:, None] * H_PAD": "positions of one sequence, whose scores lie in scratch",
    "query = nth * QUERIES + row // HEADS": "queries of one sequence",
    "tops += (load_row(planes, tile * NB + chunk * 8,": "blocks of one tile of 16 rows",
    "own = tl.minimum(lane // 4, tokens - 1) * NB": "blocks of eight rows",
    "store_sums(parts_ptr + chunk * (16 * tokens)": "sums of one tile of 16 rows",
    "row = tile * 16 + thread": "rows of a weight",
    "parts, a_ptr, sa_ptr, shared, group * C + slot": "chunks of one row of a weight",
    "acts, planes, expert * tiles + (row_group * WARPS": "tiles of 16 rows of all experts",
    "tile = (nth_tile * QUERIES, rows)": "queries of one sequence",
    "behind = nth * CHUNK - first % CHUNK": "chunks of one sequence, which have a program or a turn each",
    "store_rows(s_ptr + (position - begin) * M + row": "positions that a program keeps scores of",
    "s_at = s_ptr + (at - begin) * M": "positions that a program keeps scores of",
    "cut = (slot - first_slot(entry, seq, tables, CUT))": "positions of one sequence",
    "start = (slot - first_slot(entry, seq, tables, N))": "positions of one sequence",
    "at = (tile * (NB // 8) + chunk) * 16 + row": "chunks of one tile of 16 rows",
    "slot = (position - nth * page_size).to(tl.int64)": "a remainder: below page_size",
    "first = tl.sum(tl.where(mine, start, 0))": "rows of a batch",
    "one = one + tl.load(a_ptrs + d * x_step": "rows of one chunk, 16 at most",
    "return start, start + form.K * count, count": "rows of one chunk, 16 at most",
    "tl.store(turned_k + d * step + row": "rows of one chunk, 16 at most",
}


def line_of(place: str) -> str:
    """Return the text of "folder/file.py:12", a place in kernels/triton."""
    name, _, number = place.partition(":")
    (path,) = {p for p in ROOM.rglob(Path(name).name) if str(p).endswith(name)}
    return linecache.getline(str(path), int(number)).strip()


def noted(group: str) -> list[Launched]:
    facts = parsed_facts(GPUS.get(group, "sm_80/108"))
    made: dict[tuple[object, ...], Launched] = {}
    for op, given, attrs in GROUPS[group]():
        for kernel, arguments in kernels_of_call(facts, op, given, attrs):
            with launches(facts) as found:
                kernel.run(**arguments)
            made |= {(one.build.key, one.grid, one.arguments): one for one in found}
    return list(made.values())


@pytest.mark.parametrize("group", GROUPS)
def test_offsets_are_int64_and_grids_fit(group: str) -> None:
    texts: dict[str, str] = {}
    wide, wrong = set(), []
    for launched in noted(group):
        x, y, z = (*launched.grid, 1, 1)[:3]
        if not (x <= LARGEST_INT32 and y <= MAX_PROGRAMS_YZ and z <= MAX_PROGRAMS_YZ):
            wrong.append(f"{launched.build.name}: a grid of {launched.grid}")
        key = launched.build.key
        texts[key] = texts.get(key) or intermediate(launched.build)
        values, loaded = launched.named([name[1:] for name, _ in arguments_of(parsed(texts[key]))])
        for found in wide_offsets(texts[key], values, launched.grid, loaded):
            place, _, what = found.partition(": ")
            if not line_of(place).startswith(tuple(PROVEN)):
                wide.add(f"{place}: {line_of(place)}: {what.partition(' (')[0]}")
    assert not wide, "\n".join(sorted(wide))
    assert not wrong, "\n".join(wrong)
