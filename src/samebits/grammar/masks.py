"""Masks of answers, from the process that follows a request's format."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

import numpy as np

from samebits.core.errors import BadInput
from samebits.core.printable import one_line
from samebits.engine.sampling import FOLLOW, SAMPLE
from samebits.grammar.wire import ASK, MASK, OPEN, REFUSED, TOKEN, receive_frame

MASK_WAIT_SECONDS = 5.0  # wall time for a mask, whose process may take 0.2 s of processor time for it


class Follower:
    """The process that follows one request's answers. The engine's thread uses it; any other may `end` it."""

    def __init__(self, stream: socket.socket, vocab_size: int, end_id: int) -> None:
        stream.settimeout(MASK_WAIT_SECONDS)
        self._stream, self.vocab_size, self.end_id = stream, vocab_size, end_id
        self._num_samples, self.is_ended = 0, False
        self._replies: dict[int, tuple[bytes, bytes]] = {}  # that came before they were wanted
        self._in_use = threading.RLock()

    def end(self) -> None:
        """Lets the process go; masks that are asked for later are refused."""
        self.is_ended = True
        with suppress(OSError):  # it has gone already
            self._stream.shutdown(socket.SHUT_RDWR)  # wakes the engine's thread if that is reading
        with self._in_use:
            self._stream.close()

    def __del__(self) -> None:
        self._stream.close()

    def new_mask(self) -> GrammarMask:
        """The mask of another answer."""
        sample, self._num_samples = self._num_samples, self._num_samples + 1
        self.send(OPEN, sample)
        return GrammarMask(self, sample)

    def send(self, kind: bytes, sample: int, token: int = 0) -> None:
        """Asks for a sample's next mask; `reply` tells whether it came."""
        with suppress(OSError), self._in_use:
            self._stream.sendall(ASK.pack(kind, sample, token))

    def reply(self, sample: int) -> tuple[bytes, bytes]:
        """The reply to the sample's last question, kind and payload; BadInput where it is late or costs too much."""
        try:
            with self._in_use:
                while sample not in self._replies:
                    kind, number, payload = receive_frame(self._stream)
                    self._replies[number] = kind, payload
        except (OSError, EOFError):
            self.end()  # a late reply must not answer the next question
            raise _too_much() from None
        return self._replies.pop(sample)


def _too_much() -> BadInput:
    given = "a format whose next token takes too much time or memory to find"
    return BadInput(SAMPLE, "response_format", given, "a simpler one")


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
            raise BadInput(FOLLOW, "response_format", one_line(text), "a format that can be followed")
        if kind == MASK:
            bits = np.unpackbits(np.frombuffer(payload, np.uint8), bitorder="little")
            return bits[:vocab_size].astype(bool)
        only_end = np.zeros(vocab_size, bool)
        only_end[self._follower.end_id] = True
        return only_end
