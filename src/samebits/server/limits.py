"""What a server takes from its clients, at most."""

from __future__ import annotations

from dataclasses import dataclass

from samebits.core.errors import BadInput
from samebits.core.request_limits import GRAMMAR_SECONDS, MAX_STOPS


@dataclass(frozen=True)
class Limits:
    """Bounds on requests; each can be set by a flag of `samebits serve`.

    max_waiting       requests that wait for their turn; more are sent away with 503
    max_body_bytes    the most bytes in a request's body
    max_prompts       the most prompts in one call to completions or embeddings
    max_samples       the most answers per prompt, n
    max_stops         the most stop strings in a request, at most MAX_STOPS
    grammar_seconds   CPU time for compiling a response format, beside the bounds on its work
    deadline_seconds  time for a whole answer, from the request's arrival
    drain_seconds     time that answers under way get when the server is told to stop
    max_connections   connections in all, as far as the system has descriptors
    max_address_connections  connections from one address; IPv6 counts by networks of 64 bits
    arrival_seconds   time for a request's head, and for its body beyond what a slow line needs
    stall_seconds     time for which a client may leave a waiting answer unread
    """

    max_waiting: int = 256
    max_body_bytes: int = 4 << 20
    max_prompts: int = 128
    max_samples: int = 16
    max_stops: int = 16
    grammar_seconds: float = GRAMMAR_SECONDS
    deadline_seconds: float = 600.0
    drain_seconds: float = 30.0
    max_connections: int = 512
    max_address_connections: int = 256
    arrival_seconds: float = 20.0
    stall_seconds: float = 30.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not value > 0:
                raise BadInput("serve", name, value, "more than 0")
        if self.max_stops > MAX_STOPS:
            raise BadInput("serve", "max_stops", self.max_stops, f"at most {MAX_STOPS}")


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
