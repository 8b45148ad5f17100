"""Work that would keep other clients waiting, on another thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

Result = TypeVar("Result")
INLINE_CHARS = 2000  # encoded, parsed or written in less time than it takes to wake a thread


async def off_loop(work: Callable[..., Result], size: int, *args: Any) -> Result:
    """Some work's result; on another thread where `size` characters would keep other clients waiting."""
    return work(*args) if size <= INLINE_CHARS else await asyncio.to_thread(work, *args)
