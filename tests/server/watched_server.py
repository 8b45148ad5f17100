"""A server that watches its own event loop: `python watched_server.py MODEL PORT`.

Each line on its standard input is answered with the longest time, in seconds, for which the loop kept a task waiting
that was due since the line before. Time for which the machine ran other programs or other machines, while a thread of
ours could have run, is not counted.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

from samebits import LLM
from samebits.server.limits import Limits
from samebits.server.run import make_server

BEAT_SECONDS = 0.005


def kept_waiting() -> float:
    """Seconds for which threads of this process could have run and had no processor, all together, as Linux counts."""
    total = 0
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # a thread that has just ended
            total += int((task / "schedstat").read_text().split()[1])
    stolen_ticks = int(Path("/proc/stat").read_text().split(maxsplit=9)[8])
    return total / 1e9 + stolen_ticks / os.sysconf("SC_CLK_TCK")


class Heart:
    """`longest` is how late the latest beat was, at worst."""

    def __init__(self) -> None:
        self.longest, self._has_beaten = 0.0, threading.Event()

    async def beat(self) -> None:
        while True:
            waited, due = kept_waiting(), time.perf_counter() + BEAT_SECONDS
            await asyncio.sleep(BEAT_SECONDS)
            late = time.perf_counter() - due
            self.longest = max(self.longest, late - (kept_waiting() - waited))
            self._has_beaten.set()

    def report(self) -> None:
        for _ in sys.stdin:
            self._has_beaten.clear()
            self._has_beaten.wait()  # a beat may be late just now
            print(self.longest, flush=True)
            self.longest = 0.0


async def main(path: Path, port: int) -> None:
    options = {"context_len": 512, "max_sequences": 32}
    server = make_server(lambda: LLM(path, **options), "tiny", path, port=port, limits=Limits(deadline_seconds=5))
    heart = Heart()
    beating = asyncio.create_task(heart.beat())
    threading.Thread(target=heart.report, daemon=True).start()
    await server.serve()
    beating.cancel()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
