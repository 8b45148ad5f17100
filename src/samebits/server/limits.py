"""What a server takes from its clients, at most."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from samebits.core.errors import BadInput
from samebits.core.request_limits import GRAMMAR_SECONDS, MAX_STOPS
from samebits.core.stated import settings_of, stated


def _limit(default: float, help: str, flag: str, low: float, high: float | None = None) -> Any:
    return stated(default, help, flag, low=low, high=high, panel="Limits", reads_environment=False)


@dataclass(frozen=True)
class Limits:
    """Bounds on requests. `samebits serve` and Ray's config derive their options from the fields."""

    max_waiting: int = _limit(256, "Requests that may wait in the queue; further ones get 503.", "--max-waiting", 1)
    max_body_bytes: int = _limit(4 << 20, "The most bytes in a request's body.", "--max-body-bytes", 1)
    max_prompts: int = _limit(128, "The most prompts in one request.", "--max-prompts", 1)
    max_samples: int = _limit(16, "The most answers per prompt, n.", "--max-samples", 1, 128)
    max_stops: int = _limit(16, "The most stop strings in a request.", "--max-stops", 1, MAX_STOPS)
    grammar_seconds: float = _limit(
        GRAMMAR_SECONDS, "CPU time for compiling a response format.", "--grammar-seconds", 0.01
    )
    deadline_seconds: float = _limit(600.0, "Time for a whole answer.", "--deadline-seconds", 0.1)
    drain_seconds: float = _limit(
        30.0, "Time for the answers under way when the server is told to stop.", "--drain-seconds", 1
    )
    max_connections: int = _limit(
        512, "Connections in all, as far as there are file descriptors.", "--max-connections", 1
    )
    max_address_connections: int = _limit(
        256,  # IPv6 counts by networks of 64 bits
        "Connections from one address; behind a proxy that means all of them.",
        "--max-address-connections",
        1,
    )
    arrival_seconds: float = _limit(
        20.0, "Time for a request's head to arrive; a large body gets more.", "--arrival-seconds", 0.1
    )
    stall_seconds: float = _limit(30.0, "Time for which a client may leave its answer unread.", "--stall-seconds", 0.1)

    def __post_init__(self) -> None:
        for name, ((kind,), setting) in settings_of(Limits).items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int if kind is int else int | float):
                raise BadInput("serve", name, repr(value), "a whole number" if kind is int else "a number")
            if not value > 0:
                raise BadInput("serve", name, value, "more than 0")
            if setting.high is not None and value > setting.high:
                raise BadInput("serve", name, value, f"at most {setting.high}")


RETRY_AFTER_SECONDS = 1
KEEP_ALIVE_SECONDS = 15  # between the requests of a connection
LINGER_SECONDS = 2.0  # for reading the rest of a body that was refused, so that the client gets to see why
MIN_BODY_BYTES_PER_SECOND = 8192
MAX_BODIES = 16  # of max_body_bytes, in memory while they are read; smaller ones may be more
STALL_BYTES = 1 << 14  # a slower body makes no progress
MAX_UNREAD_PIECES = 1 << 14  # of an answer, for a client that reads slower than the model writes
MAX_MESSAGES, MAX_PARTS = 4096, 8192  # of a conversation, its parts in all
MAX_TOOLS, MAX_CALLS = 128, 1024  # of a request, and of a message in its history
MAX_TOKENIZED_CHARS = 1 << 20  # of a call to /tokenize, which may hold more than the context
MAX_DECODED_IDS = 1 << 16  # of a call to /detokenize
MAX_VALUES, MAX_DEPTH, MAX_NUMBER_CHARS = 1 << 18, 128, 400  # of a body; a name counts as one value, a list as four
CHAT_TOKENS = 4096  # of an answer in a conversation whose client states no limit, as far as the context holds them
MAX_LOGPROBS = 1 << 18  # named to one request, of its prompts in all choices, and of its answers
MAX_CHOICES, MAX_TOP_LOGPROBS, MAX_NAME_CHARS = 4096, 20, 256
