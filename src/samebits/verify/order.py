"""The order of a run: every op has a verdict soon, and what is left is always as costly as what is done.

Cases of an op used to run one after another, so that the last op had its first verdict at the end, and the time left
could not be estimated: gemm's cases cost a hundred times those of others.
"""

from __future__ import annotations

from collections import defaultdict

from samebits.verify.model import GRAPH, Task
from samebits.verify.select import prefix_of

FIRST_GRAPH = "rows-0"  # the one with the fewest nodes


def breadth_first(tasks: list[Task]) -> list[Task]:
    """Return the tasks in the order to run them: first one of every op, then each op's evenly over the run.

    The first task of an op is its first one in `tasks`, a small case with a name; of graphs it is the smallest graph.
    Single runs, reruns and soak tests of an op are spread each by themselves, since their costs differ.
    """
    first: dict[str, Task] = {}
    for task in tasks:
        if task.op not in first or (task.op, task.case) == (GRAPH, FIRST_GRAPH):
            first[task.op] = task
    groups: dict[tuple[str, str], list[Task]] = defaultdict(list)
    for task in tasks:
        if task is not first[task.op]:
            groups[task.op, prefix_of(task.case)].append(task)
    placed = [
        ((number + (index + 0.5) / len(groups)) / len(group), index, task)
        for index, group in enumerate(groups.values())
        for number, task in enumerate(group)
    ]
    return [*first.values(), *(task for _, _, task in sorted(placed, key=lambda entry: entry[:2]))]
