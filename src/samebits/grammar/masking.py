"""Masks of grammars that a receipt states, for a caller that can wait for them to be compiled."""

from __future__ import annotations

import socket
from collections.abc import Callable
from importlib.util import find_spec
from types import TracebackType

from samebits.core.errors import BadInput, SamebitsError, Unavailable
from samebits.core.installing import install_command
from samebits.core.printable import one_line
from samebits.core.request_limits import GRAMMAR_SECONDS
from samebits.engine.sampling import TokenMask
from samebits.grammar.masks import Follower
from samebits.grammar.process import START_SECONDS, Nursery, Vocabulary, fork_through
from samebits.grammar.wire import HELLO, KINDS, REFUSED, Bounds, frame, receive_frame
from samebits.receipts.record import Grammar

WALL_FACTOR = 15.0  # wall time for each second of CPU time: a replay may run on a busy machine
WAIT_SECONDS = 60.0  # for the reply of the process that compiles
NEEDED = "a grammar that can be compiled"
TOO_MUCH = "its grammar takes too much time or memory to compile on this machine"


class NotCompiled(BadInput):
    """A grammar that the compiler here refuses, with the compiler's reason."""

    def __init__(self, reason: str) -> None:
        super().__init__("receipt", "grammar", reason, NEEDED)
        self.reason = reason


class Masking:
    """Compiles each grammar once and makes masks of it, in processes that end with the `with` block."""

    def __init__(self, vocabulary: Vocabulary | None) -> None:
        """vocabulary: the model's; None where it has none that grammars can be made for."""
        self._vocabulary = vocabulary
        self._nursery = Nursery(vocabulary, Bounds(GRAMMAR_SECONDS, WALL_FACTOR)) if vocabulary else None
        self._compiled: dict[tuple[str, str], socket.socket | SamebitsError] = {}
        self._followers: list[Follower] = []

    def __enter__(self) -> Masking:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for follower in self._followers:
            follower.end()
        for compiled in self._compiled.values():
            if isinstance(compiled, socket.socket):
                compiled.close()
        if self._nursery is not None:
            self._nursery.close()

    def maker(self, grammar: Grammar) -> Callable[[], TokenMask]:
        """Return what makes the mask of an answer.

        Raise NotCompiled if the compiler refuses the grammar, BadInput for an unknown kind, Unavailable if this machine
        compiles no grammars, and SamebitsError if compiling breaks a bound on time or memory.
        """
        if self._vocabulary is None or self._nursery is None:
            raise Unavailable("grammars need a system with fork, and a model with an end-of-text token")
        if find_spec("llguidance") is None:
            raise Unavailable(f"grammars need llguidance: {install_command('receipts')}")
        key = grammar.kind, grammar.source
        if key not in self._compiled:
            try:
                self._compiled[key] = _compiled(self._nursery, grammar)
            except SamebitsError as error:  # many receipts may state it: one compilation is enough
                self._compiled[key] = error
        compiled = self._compiled[key]
        if isinstance(compiled, SamebitsError):
            raise compiled
        stream = fork_through(compiled)
        _greeted(stream)
        follower = Follower(stream, self._vocabulary.vocab_size, self._vocabulary.end)
        self._followers.append(follower)
        return follower.new_mask


def _compiled(nursery: Nursery, grammar: Grammar) -> socket.socket:
    """Return the socket of a process that has compiled the grammar. Raise as `maker` does."""
    if grammar.kind not in KINDS:
        raise BadInput("receipt", "grammar.kind", repr(grammar.kind[:80]), f"one of {', '.join(KINDS)}")
    stream = nursery.child()
    _greeted(stream)
    stream.settimeout(WAIT_SECONDS)
    try:
        stream.sendall(frame(KINDS[grammar.kind], payload=grammar.source.encode("utf-8", "surrogatepass")))
        verdict, _, reason = receive_frame(stream)
        if verdict == REFUSED:
            raise NotCompiled(one_line(reason.decode("utf-8", "replace")))
    except (OSError, EOFError):
        stream.close()
        raise SamebitsError(TOO_MUCH) from None
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
