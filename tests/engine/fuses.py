"""Requests with a fault planted in the code that comes with them: a mask, or the stream of a text."""

from __future__ import annotations

import numpy as np
from scenes import Lab, prompt_of

from samebits import SamplingParams
from samebits.engine.engine import Engine
from samebits.engine.job import Generation
from samebits.engine.request_options import RequestOptions
from samebits.loaders.tokenizer import TextStream, Tokenizer

LONG = SamplingParams(max_tokens=30, n=2, seed=3, ignore_eos=True)


class Panic(BaseException):
    """As libraries raise it that are written in another language."""


class Fuse:
    """Raises at one of its calls."""

    def __init__(self, calls_before: int, kind: type[BaseException]) -> None:
        self.calls_before, self.kind, self.is_blown = calls_before, kind, False

    def burn(self) -> None:
        self.calls_before -= 1
        if self.calls_before < 0 and not self.is_blown:
            self.is_blown = True
            raise self.kind("a fuse\nblew")


class FusedMask:
    """A grammar that allows everything, until it breaks."""

    def __init__(self, vocab_size: int, allowing: Fuse | None, accepting: Fuse | None) -> None:
        self._all = np.ones(vocab_size, bool)
        self._allowing, self._accepting = allowing, accepting

    def allowed(self) -> np.ndarray:
        if self._allowing:
            self._allowing.burn()
        return self._all

    def accept(self, token: int) -> None:
        if self._accepting:
            self._accepting.burn()


class FusedStream(TextStream):
    """The tokenizer's own stream, until it breaks."""

    def __init__(self, tokenizer: Tokenizer, fuse: Fuse, at_end: bool) -> None:
        super().__init__(tokenizer, True, frozenset())
        self._fuse, self._at_end = fuse, at_end

    def push(self, *ids: int) -> str:
        if not self._at_end:
            self._fuse.burn()
        return super().push(*ids)

    def finish(self) -> str:
        if self._at_end:
            self._fuse.burn()
        return super().finish()


def victim_of(lab: Lab, engine: Engine, where: str, fuse: Fuse, params: SamplingParams) -> Generation:
    """A request with a fuse somewhere in it."""
    prompt, vocab_size = prompt_of("two samples", lab.runner.vocab_size), lab.runner.vocab_size
    if where in ("allowed", "accept"):
        fuses = (fuse, None) if where == "allowed" else (None, fuse)
        return engine.generate(prompt, params, RequestOptions(make_mask=lambda: FusedMask(vocab_size, *fuses)))
    job = engine.generate(prompt, params)
    for answer in job.answers:
        answer._text._stream = FusedStream(lab.tokenizer, fuse, at_end=where == "finish")
    return job
