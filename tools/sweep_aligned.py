"""Verify a backend at sizes that real models have: multiples of 8, 16, 32 and 64 that are no powers of two.

python tools/sweep_aligned.py --backend cpu
TRITON_INTERPRET=1 python tools/sweep_aligned.py --backend cuda --operations 14 -j 2

Every row of an op's space gets such a size wherever the space allows one, and draws the rest. Prints each failure with
the command that runs the case again, and exits with 1 if there is one.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator
from random import Random

from samebits.ops import OPS, Op
from samebits.ops.space import Factor, Row, Space, Span, Value
from samebits.verify.model import Task
from samebits.verify.pool import Pool
from samebits.verify.proof import TIERS

STEPS = (8, 16, 32, 64)
USUALLY = 0.5  # probability that a factor without an aligned size keeps its usual value
TRIES = 24  # values to try for one factor of a row


def aligned_values(factor: Factor) -> list[int]:
    """Return sizes of the factor that are multiples of a step and no powers of two, fewer among large ones."""
    if not isinstance(factor.classes[0], Span):
        return []
    spans = [c for c in factor.classes if isinstance(c, Span)]
    low, high, unit = spans[0].low, spans[-1].high, spans[0].step
    found: set[int] = set()
    for step in STEPS:
        found.update(n for n in range(step, min(high, 16 * step) + 1, step))
    found.update(n for power in range(10, 21) for n in ((1 << power) + 64, (3 << power) // 2, (1 << power) - 64))
    return sorted(n for n in found if low <= n <= high and n % unit == 0 and n & (n - 1))


def aligned_rows(space: Space, most_operations: int, count: int, dice: Random) -> Iterator[Row]:
    """Yield rows until every aligned value of every size has come once, at most `count` rows."""
    sizes = {f.name: aligned_values(f) for f in space.factors}
    asked = [(name, value) for name, values in sizes.items() for value in values]
    dice.shuffle(asked)
    for name, value in asked[:count]:
        row: Row = {name: value}
        if not space.allows(row, most_operations):
            continue
        rest = [f for f in space.factors if f.name != name]
        dice.shuffle(rest)
        if all(_complete(space, row, factor, sizes[factor.name], most_operations, dice) for factor in rest):
            yield {f.name: row[f.name] for f in space.factors}


def _complete(space: Space, row: Row, factor: Factor, aligned: list[int], most_operations: int, dice: Random) -> bool:
    """Give the row a value of this factor. Return False if none of those tried is allowed beside the others."""
    tries: list[Value] = [dice.choice(aligned) for _ in range(TRIES // 2)] if aligned else []
    if not aligned and dice.random() < USUALLY:
        tries.append(factor.usual)
    tries += [dice.choice(factor.classes).draw(dice) for _ in range(TRIES // 2)]
    for value in (*tries, factor.usual, factor.least):
        row[factor.name] = value
        if space.allows(row, most_operations):
            return True
    return False


def tasks_of(op: Op, backend: str, tiers: tuple[str, ...], most_operations: int, count: int, seed: int) -> list[Task]:
    """Return a task for each row drawn, without repetition."""
    if op.space is None:
        return []
    dice = Random(f"{seed}/{op.name}/aligned")
    rows = aligned_rows(op.space, most_operations, count, dice)
    return [Task(backend, op.name, name, tiers, seed) for name in dict.fromkeys(map(op.space.row_id, rows))]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="cpu", help="the backend to verify")
    parser.add_argument("--op", action="append", choices=sorted(op.name for op in OPS), help="only this op; repeatable")
    parser.add_argument("--tier", action="append", choices=TIERS, help="only this tier; repeatable")
    parser.add_argument("--count", type=int, default=120, help="the most rows of an op")
    parser.add_argument("--operations", type=int, default=22, help="log2 of the most operations of a row's reference")
    parser.add_argument("--seed", type=int, default=0, help="the seed of rows and inputs")
    parser.add_argument("--seconds", type=float, default=120.0, help="the most seconds of a case")
    parser.add_argument("--stop-after", type=float, default=1e9, help="start no more cases after this many seconds")
    parser.add_argument("-j", type=int, default=2, dest="jobs", help="worker processes")
    arguments = parser.parse_args()
    chosen = [OPS[name] for name in arguments.op] if arguments.op else list(OPS)
    tiers, most = tuple(arguments.tier or TIERS), 1 << arguments.operations
    tasks = [
        task for op in chosen for task in tasks_of(op, arguments.backend, tiers, most, arguments.count, arguments.seed)
    ]
    Random(arguments.seed).shuffle(tasks)  # a run that is cut short has seen every op
    counts: dict[str, Counter[str]] = {op.name: Counter() for op in chosen}
    started, num_cases = time.monotonic(), 0
    for results in Pool(arguments.backend, arguments.jobs, arguments.seconds).run(tasks):
        num_cases += 1
        for result in results:
            counts[result.op][result.status] += 1
            if result.status in ("fail", "unfinished"):
                where = f"{result.status.upper()} {result.op} {result.case} at {result.tier}"
                print(f"{where}: {result.reason}\n     {result.replay}", flush=True)
        if time.monotonic() - started > arguments.stop_after:
            break
    for name, counted in counts.items():
        print(f"{name:28}", *(f"{status} {counted[status]}" for status in sorted(counted)))
    total = sum(counts.values(), Counter())
    print(f"{num_cases} of {len(tasks)} cases, {dict(total)} in {time.monotonic() - started:.0f} s")
    return 1 if total["fail"] or total["unfinished"] or not total["pass"] else 0


if __name__ == "__main__":
    sys.exit(main())
