"""Masks of grammars that a receipt states, for a caller that can wait for them to be compiled."""

from __future__ import annotations

import socket
from collections.abc import Callable
from importlib.util import find_spec
from types import TracebackType

from samebits.core.errors import BadInput, SamebitsError, Unavailable
from samebits.core.printable import one_line
from samebits.engine.sampling import TokenMask
from samebits.grammar.masks import Follower
from samebits.grammar.process import START_SECONDS, Nursery, Vocabulary, fork_through
from samebits.grammar.wire import HELLO, KINDS, REFUSED, Bounds, frame, receive_frame
from samebits.receipts.record import Grammar

COMPILE_SECONDS = 10.0  # of CPU time
WAIT_SECONDS = 60.0  # for what compiles on a busy machine
TOO_MUCH = "a grammar that takes too much time or memory to compile"


class Masking:
    """Compiles each grammar once and makes masks of it, in processes that end with the `with` block."""

    def __init__(self, vocabulary: Vocabulary | None) -> None:
        """vocabulary: the model's; None where it has none that grammars can be made for."""
        self._vocabulary = vocabulary
        self._nursery = Nursery(vocabulary, Bounds(COMPILE_SECONDS)) if vocabulary else None
        self._compiled: dict[Grammar, socket.socket] = {}
        self._followers: list[Follower] = []

    def __enter__(self) -> Masking:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for follower in self._followers:
            follower.end()
        for stream in self._compiled.values():
            stream.close()
        if self._nursery is not None:
            self._nursery.close()

    def maker(self, grammar: Grammar) -> Callable[[], TokenMask]:
        """What makes the mask of an answer. BadInput for what does not compile, Unavailable where nothing could."""
        if self._vocabulary is None or self._nursery is None:
            raise Unavailable("grammars need a system with fork, and a model with an end-of-text token")
        if find_spec("llguidance") is None:
            raise Unavailable("grammars need llguidance: pip install 'samebits[receipts]'")
        if grammar not in self._compiled:
            self._compiled[grammar] = _compiled(self._nursery, grammar)
        stream = fork_through(self._compiled[grammar])
        _greeted(stream)
        follower = Follower(stream, self._vocabulary.vocab_size, self._vocabulary.end)
        self._followers.append(follower)
        return follower.new_mask


def _compiled(nursery: Nursery, grammar: Grammar) -> socket.socket:
    """The socket of a process that has compiled it."""
    if grammar.kind not in KINDS:
        raise BadInput("receipt", "grammar.kind", repr(grammar.kind[:80]), f"one of {', '.join(KINDS)}")
    stream = nursery.child()
    _greeted(stream)
    stream.settimeout(WAIT_SECONDS)
    try:
        stream.sendall(frame(KINDS[grammar.kind], payload=grammar.source.encode("utf-8", "surrogatepass")))
        verdict, _, reason = receive_frame(stream)
        if verdict == REFUSED:
            text = one_line(reason.decode("utf-8", "replace"))
            raise BadInput("receipt", "grammar", text, "a grammar that can be compiled")
    except (OSError, EOFError):
        stream.close()
        raise BadInput("receipt", "grammar", TOO_MUCH, "a simpler one") from None
    except BaseException:
        stream.close()
        raise
    return stream


def _greeted(stream: socket.socket) -> None:
    """Waits until a new process is there; SamebitsError, and the socket closed, where it does not come up."""
    stream.settimeout(START_SECONDS)
    try:
        hello, _, _ = receive_frame(stream)
    except (OSError, EOFError):
        stream.close()
        raise SamebitsError("the process for grammars did not start") from None
    if hello != HELLO:
        stream.close()
        raise SamebitsError("the process for grammars is of another version")
