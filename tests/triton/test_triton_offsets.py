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
from samebits.kernels.triton.lib.sizes import LARGEST_INT32, MOST_PROGRAMS_YZ

ROOM = Path(samebits.__file__).parent / "kernels" / "triton"
GPUS = {"rows": "sm_90/132", "select": "sm_90/132", "caches": "sm_90/132", "recurrent": "sm_80/108"}
# Products of int32 that are offsets and hold them: the line, and what bounds it.
PROVEN: dict[str, str] = {}



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
        if not (x <= LARGEST_INT32 and y <= MOST_PROGRAMS_YZ and z <= MOST_PROGRAMS_YZ):
            wrong.append(f"{launched.build.name}: a grid of {launched.grid}")
        key = launched.build.key
        texts[key] = texts.get(key) or intermediate(launched.build)
        values, loaded = launched.named([name[1:] for name, _ in arguments_of(parsed(texts[key]))])
        for found in wide_offsets(texts[key], values, launched.grid, loaded):
            place, _, what = found.partition(": ")
            if line_of(place) not in PROVEN:
                wide.add(f"{place}: {line_of(place)}: {what.partition(' (')[0]}")
    assert sorted(wide) == []
    assert wrong == []
