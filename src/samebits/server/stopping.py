"""How a server stops: answers in progress get some time, and are cut without a traceback when it has passed."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable
from types import FrameType

import uvicorn

POLL_SECONDS = 0.1
RELEASE_SECONDS = 10  # for a request whose connection was cut to end its work


class StoppingServer(uvicorn.Server):
    """Lets answers in progress end for `drain_seconds` when a signal stops the server. A SIGINT after that cuts them.

    To a request, being cut is the same as a client that has gone: its connection is closed, and its work ends.

    tell   gets a line that says how many answers are in progress, and one if they are cut
    """

    def __init__(self, config: uvicorn.Config, drain_seconds: float, tell: Callable[[str], None]) -> None:
        config.timeout_graceful_shutdown = int(drain_seconds) + RELEASE_SECONDS
        super().__init__(config)
        self._drain_seconds, self._tell = drain_seconds, tell
        self._was_interrupted = self._is_cut_due = False

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if sig == signal.SIGINT and self.should_exit:
            self._is_cut_due = True
            return  # uvicorn would leave without closing the model
        self._was_interrupted = sig == signal.SIGINT
        super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if num_answers := len(self.server_state.tasks):
            hint = "; press Ctrl-C again to stop now" if self._was_interrupted else ""
            self._tell(f"stopping: {_answers(num_answers)} in progress, up to {self._drain_seconds:g} s{hint}")
        cutting = asyncio.create_task(self._cut_when_due())
        try:
            await super().shutdown(sockets)
        finally:
            cutting.cancel()

    async def _cut_when_due(self) -> None:
        clock = asyncio.get_running_loop().time
        deadline = clock() + self._drain_seconds
        while clock() < deadline and not self._is_cut_due:
            await asyncio.sleep(POLL_SECONDS)
        if num_answers := len(self.server_state.tasks):
            self._tell(f"stopped: {_answers(num_answers)} {'was' if num_answers == 1 else 'were'} cut")
        for connection in list(self.server_state.connections):
            connection.transport.abort()


def _answers(count: int) -> str:
    return "1 answer" if count == 1 else f"{count} answers"
