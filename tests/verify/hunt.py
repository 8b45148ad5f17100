"""Which case of `samebits verify` catches each planted defect, kept in caught.json for the test that plays them again.

    python tests/verify/hunt.py [--full] [-j N] [NAME ...]     hunts all that caught.json does not name, or these
    python tests/verify/hunt.py --stale                        hunts all whose quick case is no longer drawn

Run it again after a change of an op's space, because other rows are drawn then.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
import warnings
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path

from defects import PLANTED, backend_name

from samebits.ops import OPS
from samebits.verify.examine import examine
from samebits.verify.model import GRAPH, Task
from samebits.verify.select import find_case, graph_tasks, op_tasks

CAUGHT = Path(__file__).parent / "caught.json"
NEAREST = 24  # rows like the one that caught a defect before, which usually catch it again
MOST_OPS = 3  # a defect of every op shows in any of them


def tiers_of(name: str) -> tuple[str, ...]:
    """Return the tier that a defect's kernels claim, as tasks state it."""
    return (PLANTED[name].tier.label,)


def tasks_against(name: str, full: bool, last: str = "") -> list[Task]:
    """Return the tasks of a run of seed 0 that may catch a defect.

    The cheapest come first, but for NEAREST drawn rows that share the most values with `last`, the row that caught the
    defect before its op's space changed.
    """
    defect = PLANTED[name]
    chosen = dict.fromkeys([*defect.ops[:MOST_OPS], *({"add"} & set(defect.ops))])  # add has two inputs alike
    ops = [OPS[op] for op in chosen]
    tiers = tiers_of(name)
    cases = [t for op in ops for t in op_tasks(backend_name(defect), tiers, op, full, 0)]
    cases.sort(key=cost)
    if last:
        alike = sorted(cases, key=lambda task: -_num_shared(task.case, last))[:NEAREST]
        cases = [*alike, *(task for task in cases if task not in alike)]
    graphs = graph_tasks(backend_name(defect), tiers, None, full, 0)
    return [*graphs, *cases] if defect.klass == "graphs" else [*cases, *graphs]


def stale_names(caught: dict[str, dict[str, str]]) -> list[str]:
    """Return the defects that a quick run caught by a case that it no longer plays."""
    return [n for n, f in caught.items() if f["set"] == "quick" and f["case"] not in quick_cases(f["op"])]


@cache
def quick_cases(op: str) -> frozenset[str]:
    """Return the names of a quick run's cases of an op, or of graphs if it is GRAPH."""
    graphs = op == GRAPH
    tasks = graph_tasks("reference", ("portable",), None, full=False, seed=0) if graphs else quick_tasks(op)
    return frozenset(task.case for task in tasks)


@cache
def quick_tasks(op: str) -> tuple[Task, ...]:
    """Return the tasks that a quick run of seed 0 plays on an op. Drawing them takes a second for some ops."""
    return tuple(op_tasks("reference", ("portable",), OPS[op], full=False, seed=0))


def _num_shared(case: str, other: str) -> int:
    """Return how many settings `name=value` two rows have in common."""
    return len(set(case.split(",")) & set(other.split(",")))


def cost(task: Task) -> int:
    """Of a task's reference; cases with a name are small."""
    space, case = OPS[task.op].space, find_case(OPS[task.op], task.case)
    often = 200 if task.case.startswith("soak:") else 1
    return often * (space.cost(space.parse(case.id)) if space and "=" in case.id else 100_000)


def _is_accident(reason: str) -> bool:
    """Return whether the planted code itself broke by accident.

    It is a catch if the defect raises on purpose, or if the definition refuses what it was led to read.
    """
    return reason.startswith("error:") and "BadInput" not in reason and "PlantedCrash" not in reason


def hunt(asked: tuple[str, bool, dict[str, str]]) -> tuple[str, dict[str, str] | None, float]:
    """Return (defect, the first task that fails and its reason, seconds).

    `asked` is the defect, whether to play a full run's cases, and what an earlier hunt left in caught.json, or {}.
    Each task is played on a new backend. If none fails, each is played again after the task before it, unless the
    earlier hunt needed no such pair.
    """
    name, full, earlier = asked
    warnings.simplefilter("ignore")
    started, tasks = time.monotonic(), tasks_against(name, full, earlier.get("case", ""))
    pairs = pairwise(tasks) if not earlier or "after" in earlier else ()
    for before, task in (*((None, t) for t in tasks), *pairs):
        found = played(name, before.case if before and before.op == task.op else "", task)
        if found:
            kept = {"set": "full" if full else "quick", "op": task.op, **found}
            return name, kept, time.monotonic() - started
    return name, None, time.monotonic() - started


def played(name: str, before: str, task: Task) -> dict[str, str]:
    """What a task finds on a fresh backend that has played the case `before`, if one is named; empty for nothing."""
    backend = PLANTED[name]()
    if before:
        examine(backend, backend.probe(), replace(task, case=before))
    failed = [r for r in examine(backend, backend.probe(), task) if r.status == "fail"]
    if not failed or _is_accident(failed[0].reason):
        return {}
    found = {"case": task.case, "check": failed[0].reason.partition(":")[0]}
    return {**found, "after": before} if before else found


def main() -> None:
    parser = argparse.ArgumentParser(description="Find the cases that catch planted defects.")
    parser.add_argument("names", nargs="*", choices=[*PLANTED, []], metavar="NAME")
    parser.add_argument("--full", action="store_true", help="in a full run's cases")
    parser.add_argument("--stale", action="store_true", help="hunt the defects whose quick case is no longer drawn")
    parser.add_argument("-j", type=int, default=2, help="processes")
    asked = parser.parse_args()
    caught = json.loads(CAUGHT.read_text()) if CAUGHT.exists() else {}
    names = stale_names(caught) if asked.stale else asked.names or [n for n in PLANTED if n not in caught]
    missed = []
    hunts = [(name, asked.full, caught.get(name, {})) for name in names]
    with multiprocessing.get_context("spawn").Pool(asked.j, maxtasksperchild=10) as pool:
        for name, found, seconds in pool.imap_unordered(hunt, hunts):
            print(f"{PLANTED[name].klass:10} {name:32} {seconds:6.1f} s  {found or 'MISSED'}", flush=True)
            if found is None:
                missed.append(name)
                continue
            caught[name] = found
            CAUGHT.write_text(json.dumps(dict(sorted(caught.items())), indent=1) + "\n")
    print(f"{len(names) - len(missed)} of {len(names)} caught; missed: {', '.join(missed) or 'none'}")


if __name__ == "__main__":
    main()
