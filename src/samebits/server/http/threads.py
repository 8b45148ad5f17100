"""Work that would keep other clients waiting, on another thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

Result = TypeVar("Result")
INLINE_CHARS = 2000  # encoded, parsed or written in less time than it takes to wake a thread
NUM_WORKERS = 2  # they share one interpreter with the event loop: with more of them the loop only waits longer
_workers = ThreadPoolExecutor(NUM_WORKERS, "samebits-work")


async def on_worker(work: Callable[..., Result], *args: Any) -> Result:
    """Return the result of work that needs the processor; what waits for a process or a lock belongs elsewhere."""
    return await asyncio.get_running_loop().run_in_executor(_workers, work, *args)


async def off_loop(work: Callable[..., Result], size: int, *args: Any) -> Result:
    """Some work's result; on another thread where `size` characters would keep other clients waiting."""
    return work(*args) if size <= INLINE_CHARS else await on_worker(work, *args)


async def on_own_thread(work: Callable[..., Result], *args: Any) -> Result:
    """Return the result of long work. If the caller is cancelled, the work goes on until the process ends.

    Unlike a thread of `asyncio.to_thread`, this one keeps neither the event loop nor the process from ending.
    """
    result: Future[Result] = Future()

    def run() -> None:
        if not result.set_running_or_notify_cancel():
            return
        try:
            result.set_result(work(*args))
        except BaseException as error:  # panics of native libraries are not Exceptions
            result.set_exception(error)

    threading.Thread(target=run, name="samebits-loading", daemon=True).start()
    return await asyncio.wrap_future(result)
