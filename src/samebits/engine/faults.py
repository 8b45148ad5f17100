"""What other people's code raises while a request is served, as the reason that request fails with."""

from __future__ import annotations

from threading import current_thread, main_thread

from samebits.core.errors import SamebitsError

MAX_REASON_CHARS = 500


def reason_of(error: BaseException) -> str:
    """One line. What asks the process to end comes to the main thread, is no request's fault, and is raised again.

    For `except BaseException`: panics of native libraries are no Exceptions.
    """
    if isinstance(error, (KeyboardInterrupt, SystemExit)) and current_thread() is main_thread():
        raise error
    text = " ".join(str(error).split())[:MAX_REASON_CHARS]
    return text if isinstance(error, SamebitsError) else f"{type(error).__name__}: {text}"
