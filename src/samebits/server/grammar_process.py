"""The server's side of the processes of grammars: starting them, asking for masks, ending them all."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from samebits.core.errors import BadInput, SamebitsError
from samebits.server.errors import printable
from samebits.server.grammar_wire import (
    ASK,
    FORK,
    HEAD,
    HELLO,
    MASK,
    OPEN,
    REFUSED,
    TOKEN,
    Bounds,
    frame,
    receive_frame,
)

COMMAND = (sys.executable, "-P", "-m", "samebits.server.grammar_worker")
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}  # it forks
MASK_WAIT_SECONDS = 2.0  # by the clock, for a mask that takes its process a tenth of that
MAX_REASON_CHARS = 200
SAMPLER = "sample"  # where the engine's sampler expects refusals of single rows to come from


@dataclass(frozen=True)
class Vocabulary:
    """What the processes read: the model's file or folder, its number of logits, and the token that ends an answer."""

    path: Path
    vocab_size: int
    end: int


class Nursery:
    """The process that holds the vocabulary, and through it all processes of grammars.

    All that descend from it are in one process group, which `close` ends.
    """

    def __init__(self, vocabulary: Vocabulary, bounds: Bounds) -> None:
        self._settings = {**asdict(vocabulary), "path": str(vocabulary.path), "bounds": asdict(bounds)}
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._is_closed, self._lock = False, threading.Lock()

    def child(self) -> socket.socket:
        """A socket to a new process that waits for a format; SamebitsError where there can be none.

        The first call starts the first process, as does one that finds it dead.
        """
        with self._lock:
            if self._is_closed:
                raise SamebitsError("the server is shutting down")
            try:
                if self._process is None or self._control is None or self._process.poll() is not None:
                    self._end()
                    self._control = self._start()
                return fork_through(self._control)
            except OSError as error:
                raise SamebitsError(f"the process for response formats cannot be started: {error}") from None

    def close(self) -> None:
        """Ends every process of a grammar; there will be no others."""
        with self._lock:
            self._is_closed = True
            self._end()

    def _start(self) -> socket.socket:
        control, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [*COMMAND, str(theirs.fileno()), json.dumps(self._settings)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**os.environ, **ONE_THREAD},
                pass_fds=(theirs.fileno(),),
                start_new_session=True,  # a group of its own, which no Ctrl-C at the terminal reaches
            )
        return control

    def _end(self) -> None:
        if self._control is not None:
            self._control.close()
        if self._process is not None:
            with suppress(ProcessLookupError):  # they have all ended
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._process = self._control = None


def fork_through(control: socket.socket) -> socket.socket:
    """A socket to a new child of the process behind `control`; OSError where that has gone."""
    mine, theirs = socket.socketpair()
    with theirs:
        try:
            socket.send_fds(control, [FORK], [theirs.fileno()])
        except OSError:
            mine.close()
            raise
    return mine


class Ended(Exception):
    """A process ended before it said anything more: it broke a bound, or never came up."""


async def read_frame(stream: socket.socket) -> tuple[bytes, int, str]:
    """Kind, number and text of the next reply, without a thread that waits for it; Ended where none will come."""
    loop = asyncio.get_running_loop()

    async def exactly(num_bytes: int) -> bytes:
        data = b""
        while len(data) < num_bytes:
            try:
                part = await loop.sock_recv(stream, num_bytes - len(data))
            except ConnectionError:
                part = b""
            if not part:
                raise Ended
            data += part
        return data

    kind, number, num_bytes = HEAD.unpack(await exactly(HEAD.size))
    return kind, number, (await exactly(num_bytes)).decode("utf-8", "replace")


class Refused(Exception):
    """A format that is no format; the text is the compiler's reason."""


async def compile_in(stream: socket.socket, kind: bytes, text: str) -> int:
    """Has a new process compile a format; the bytes that takes there.

    Refused with the reason, Ended where it broke a bound, SamebitsError where the process did not come up.
    """
    stream.setblocking(False)
    try:
        hello, _, _ = await read_frame(stream)
    except Ended:
        raise SamebitsError("the process for response formats did not start") from None
    if hello != HELLO:
        raise SamebitsError("the process for response formats is of another version")
    try:
        await asyncio.get_running_loop().sock_sendall(stream, frame(kind, payload=text.encode("utf-8")))
    except ConnectionError:
        raise Ended from None
    verdict, num_bytes, reason = await read_frame(stream)
    if verdict == REFUSED:
        raise Refused(_line(reason))
    return num_bytes


def _line(reason: str) -> str:
    return printable(" ".join(reason.split()))[:MAX_REASON_CHARS]


class Follower:
    """The process that follows one request's answers. The engine's thread uses it; any other may `end` it."""

    def __init__(self, stream: socket.socket, vocab_size: int, end_id: int) -> None:
        stream.settimeout(MASK_WAIT_SECONDS)
        self._stream, self.vocab_size, self.end_id = stream, vocab_size, end_id
        self._num_samples, self.is_ended = 0, False
        self._replies: dict[int, tuple[bytes, bytes]] = {}  # that came before they were wanted

    def end(self) -> None:
        """Lets the process go; masks that are asked for later are refused."""
        self.is_ended = True
        with suppress(OSError):  # it has gone already
            self._stream.shutdown(socket.SHUT_RDWR)  # no more: the engine's thread may be reading

    def __del__(self) -> None:
        self._stream.close()

    def new_mask(self) -> GrammarMask:
        """The mask of another answer."""
        sample, self._num_samples = self._num_samples, self._num_samples + 1
        self.send(OPEN, sample)
        return GrammarMask(self, sample)

    def send(self, kind: bytes, sample: int, token: int = 0) -> None:
        """Asks for a sample's next mask. Whether that comes, `reply` will say."""
        with suppress(OSError):
            self._stream.sendall(ASK.pack(kind, sample, token))

    def reply(self, sample: int) -> tuple[bytes, bytes]:
        """Kind and payload that answer the sample's last ask; BadInput for a mask that is late or costs too much."""
        try:
            while sample not in self._replies:
                kind, number, payload = receive_frame(self._stream)
                self._replies[number] = kind, payload
        except (OSError, EOFError):
            self.end()  # what was late must not answer what is asked next
            raise _too_much() from None
        return self._replies.pop(sample)


def _too_much() -> BadInput:
    given = "a format whose next token takes too much time or memory to find"
    return BadInput(SAMPLER, "response_format", given, "a simpler one")


class GrammarMask:
    """One answer's place in a grammar. The mask is computed while the model is, and fetched when it is wanted."""

    def __init__(self, follower: Follower, sample: int) -> None:
        self._follower, self._sample = follower, sample
        self._allowed: np.ndarray | None = None
        self._refusal: BadInput | None = None

    def allowed(self) -> np.ndarray:
        """As the protocol says; BadInput, also when asked again, where the format cannot be followed any further."""
        if self._refusal is not None:
            raise self._refusal
        if self._allowed is None:
            try:
                self._allowed = self._fetched()
            except BadInput as error:
                self._refusal = error
                raise
        return self._allowed

    def accept(self, token: int) -> None:
        self._allowed = None
        if self._refusal is None:
            self._follower.send(TOKEN, self._sample, token)

    def _fetched(self) -> np.ndarray:
        kind, payload = self._follower.reply(self._sample)
        vocab_size = self._follower.vocab_size
        if kind == REFUSED:
            text = payload.decode("utf-8", "replace")
            raise BadInput(SAMPLER, "response_format", _line(text), "a format that can be followed")
        if kind == MASK:
            bits = np.unpackbits(np.frombuffer(payload, np.uint8), bitorder="little")
            return bits[:vocab_size].astype(bool)
        only_end = np.zeros(vocab_size, bool)
        only_end[self._follower.end_id] = True
        return only_end
