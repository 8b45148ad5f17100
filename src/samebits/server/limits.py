"""What a server takes from its clients, at most."""

from __future__ import annotations

from dataclasses import dataclass

from samebits.core.errors import BadInput


@dataclass(frozen=True)
class Limits:
    """Bounds on requests; each can be set by a flag of `samebits serve`.

    max_waiting       requests that wait for their turn; more are sent away with 503
    max_body_bytes    of a request
    max_prompts       of one call to completions or embeddings
    max_samples       n
    max_stops         stop strings of a request
    grammar_seconds   of CPU for compiling a response format
    deadline_seconds  for a whole answer, from its arrival
    drain_seconds     that answers under way get when the server is told to stop
    """

    max_waiting: int = 256
    max_body_bytes: int = 4 << 20
    max_prompts: int = 128
    max_samples: int = 16
    max_stops: int = 16
    grammar_seconds: float = 1.0
    deadline_seconds: float = 600.0
    drain_seconds: float = 30.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not value > 0:
                raise BadInput("serve", name, value, "more than 0")


RETRY_AFTER_SECONDS = 1
MAX_MESSAGES, MAX_PARTS = 4096, 8192  # of a conversation, its parts in all
MAX_SCHEMA_CHARS = 1 << 18
MAX_DECODED_IDS = 1 << 16  # of a call to /detokenize
MAX_VALUES, MAX_DEPTH, MAX_NUMBER_CHARS = 1 << 18, 128, 400  # of a body; a name is a value, a list four
MAX_BIASES, MAX_TOP_LOGPROBS, MAX_STOP_CHARS, MAX_NAME_CHARS = 1024, 20, 1024, 256
