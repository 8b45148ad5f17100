"""What other people's code raises while a request is served, as the reason that request fails with."""

from __future__ import annotations

from threading import current_thread, main_thread

from samebits.core.errors import SamebitsError

MAX_REASON_CHARS = 500


def is_interrupt(error: BaseException) -> bool:
    """Return whether this asks the process to end: it comes to the main thread, and is no request's fault."""
    return isinstance(error, (KeyboardInterrupt, SystemExit)) and current_thread() is main_thread()


def described(error: BaseException) -> str:
    """Return the error as one line."""
    text = " ".join(str(error).split())[:MAX_REASON_CHARS]
    return text if isinstance(error, SamebitsError) else f"{type(error).__name__}: {text}"


def reason_of(error: BaseException) -> str:
    """Return the error as one line, or raise it again if it is an interrupt.

    For `except BaseException`: panics of native libraries are no Exceptions.
    """
    if is_interrupt(error):
        raise error
    return described(error)
