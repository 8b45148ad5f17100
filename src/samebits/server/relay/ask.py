"""A request on its way to an engine in another process, and whose bits it may be answered with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from samebits.core.errors import SamebitsError
from samebits.engine.async_engine import QueueFull
from samebits.engine.sampling import SamplingParams
from samebits.receipts.record import Grammar


class ReplyTo(NamedTuple):
    """Where pieces are wanted: a port that takes connections, and the secret that they must begin with."""

    host: str
    port: int
    secret: bytes


@dataclass(frozen=True)
class Ask:
    """A prompt to be continued, or an answer that was begun elsewhere and is to go on.

    prompt        int32 [tokens]
    params        with a seed
    seconds_left  until the deadline: clocks of machines differ
    grammar       that answers are held to
    samples       of params.n, those to be made; one where it has begun
    begun         tokens that this one has already
    plan          what the asker was set up for; others must not answer
    edition       of the replica that began; None where any of the plan may
    number        of the request's messages at `reply_to`
    """

    prompt: np.ndarray
    params: SamplingParams
    priority: int
    salt: bytes
    seconds_left: float | None
    grammar: Grammar | None
    samples: tuple[int, ...]
    begun: tuple[int, ...]
    plan: str
    edition: str | None
    reply_to: ReplyTo
    number: int


class Lost(SamebitsError):
    """Whoever answered is gone, or is not the one to ask; another may go on."""


class Full(QueueFull):
    """Nobody has room for another request."""


class WrongEdition(Lost):
    """It would answer with other bits."""
