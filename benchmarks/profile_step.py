"""Where a step's time goes on the native backend: one table by op.

python benchmarks/profile_step.py smollm2 --tokens 1 --depth 16 --threads 2
"""

from __future__ import annotations

import argparse
from collections import Counter

from samebits import LLM
from samebits.backends.cpu.executable import CpuExecutable
from samebits.bench.ours import step_batch
from samebits.bench.results import Row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", default="smollm2")
    parser.add_argument("--tokens", type=int, default=1, help="in a step")
    parser.add_argument("--depth", type=int, default=16, help="tokens before it")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=20)
    given = parser.parse_args()
    llm = LLM(given.model, backend="cpu", threads=given.threads)
    executable = llm.runner._executable
    if not isinstance(executable, CpuExecutable):
        raise SystemExit("the model does not run on native kernels alone")
    program = executable.program
    row, runner = Row("prefill", given.tokens), llm.runner
    batch = step_batch(row, runner.limits, runner.vocab_size, given.depth, given.tokens)
    runner.run(batch)  # the first step touches pages of the cache, which the system then clears
    program.measure()
    seconds, calls = Counter[str](), Counter[str]()
    for _ in range(given.repeats):
        runner.run(batch)
        for op, taken in program.seconds():
            seconds[op] += taken / given.repeats
            calls[op] += 1
    total = sum(seconds.values())
    print(f"{'op':24} {'calls':>6} {'us':>10} {'share':>7}")
    for op, taken in seconds.most_common():
        print(f"{op:24} {calls[op] // given.repeats:6} {taken * 1e6:10.1f} {taken / total:7.1%}")
    print(f"{'all':24} {'':6} {total * 1e6:10.1f}")


if __name__ == "__main__":
    main()
