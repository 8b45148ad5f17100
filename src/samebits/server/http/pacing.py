"""How many requests begin in one turn of the event loop: many may arrive at once, and others must get their turn."""

from __future__ import annotations

import asyncio
from collections import deque

STARTS_A_TURN = 4  # reading, checking and encoding a small request takes a millisecond


class Pacer:
    """Lets callers pass in the order of their arrival, a few in each turn of the event loop. For one event loop."""

    def __init__(self, max_starts: int = STARTS_A_TURN) -> None:
        self._max_starts, self._num_starts = max_starts, 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def wait(self) -> None:
        """Return at once if few have passed in this turn and nobody waits, else when it is the caller's turn."""
        if self._num_starts >= self._max_starts:
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            await turn
        else:
            self._count()

    def _count(self) -> None:
        if self._num_starts == 0:
            asyncio.get_running_loop().call_soon(self._next_turn)
        self._num_starts += 1

    def _next_turn(self) -> None:
        """Let the first of those that wait pass. Callers that are no longer there take no place."""
        self._num_starts = 0
        while self._waiting and self._num_starts < self._max_starts:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                self._count()
