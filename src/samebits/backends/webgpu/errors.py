"""What wgpu raises, or says to its log, in one line of ours."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import wgpu

from samebits.core.errors import OutOfMemory, SamebitsError, Unavailable

LOST, FULL = "device is lost", "Not enough memory"  # as wgpu words it, whatever the class of its error
MAX_LINES = 3
NO_NEWS = ("Validation Error", "Caused by:", "In wgpu")  # how lines begin that tell a user nothing
FRAME = str.maketrans("", "", "┌─│╭╰^")  # around the place in a shader


def one_line(error: BaseException | str) -> str:
    """The lines of an error that say something, in one."""
    lines = [" ".join(line.translate(FRAME).split()) for line in str(error).splitlines()]
    news = [line for line in lines if line and not line.startswith(NO_NEWS)]
    return " / ".join(news[:MAX_LINES]) or type(error).__name__


@contextmanager
def explained(what: str) -> Iterator[None]:
    """Turns wgpu's errors into ours. OutOfMemory where there is no room, Unavailable where the device is gone."""
    try:
        yield
    except (wgpu.GPUError, RuntimeError) as error:
        raise in_words(what, str(error)) from None


def in_words(what: str, text: str) -> SamebitsError:
    """The error that a text of wgpu's stands for."""
    if LOST in text:
        return Unavailable(f"webgpu: {what}: the device was lost; needs a new process")
    if FULL in text:
        return OutOfMemory(f"webgpu: {what}: no room is left")
    return SamebitsError(f"webgpu: {what}: {one_line(text)}")


class _Unraised(logging.Handler):
    """Errors that wgpu can attribute to no call and so only logs: kept until someone waits for the device.

    It also keeps wgpu from printing: its logger has a handler now. Those that an application adds hear everything.
    """

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if "lost" not in record.getMessage().lower():  # every later call on that device says so itself
            self.texts.append(record.getMessage())


_UNRAISED = _Unraised()
logging.getLogger("wgpu").addHandler(_UNRAISED)


def raise_unraised() -> None:
    """Raises what wgpu has only logged since the last call, if anything."""
    if _UNRAISED.texts:
        text, _UNRAISED.texts = _UNRAISED.texts[0], []
        raise in_words("the device", text)
