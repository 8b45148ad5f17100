"""The options of a request beside its prompt and its sampling parameters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isnan
from typing import TYPE_CHECKING

from samebits.core.errors import BadInput
from samebits.engine.sampling import TokenMask

if TYPE_CHECKING:
    from samebits.receipts.record import Grammar


@dataclass(frozen=True, kw_only=True)
class RequestOptions:
    """The options of a request beside its prompt and its sampling parameters. Raises BadInput for a wrong value.

    priority        requests with a smaller number are served sooner
    salt            requests share cached prompts only with requests of the same salt
    deadline        time of the engine's clock, in seconds, at which the request ends with what it has
    make_mask       makes the mask of one answer; an engine in another process makes masks of the grammar instead
    grammar         what masks are made of, for receipts
    drafted         tokens that the only answer is expected to have, which are verified as fast as a prompt is computed.
                    The answer ends with finish_reason "diverged" at the first draw that is another token, and with
                    "unfinished" if it has all of them and would go on
    goes_on         the answer does go on there: it was begun elsewhere, with all that depends on its tokens
    sample_indices  of the params' `n` samples, those to be made, in order; all if absent
    """

    priority: int = 0
    salt: bytes = b""
    deadline: float | None = None
    make_mask: Callable[[], TokenMask] | None = None
    grammar: Grammar | None = None
    drafted: Sequence[int] | None = None
    goes_on: bool = False
    sample_indices: Sequence[int] | None = None

    def __post_init__(self) -> None:
        if self.deadline is not None and isnan(self.deadline):
            raise BadInput("generate", "deadline", self.deadline, "a time in seconds")
        if not isinstance(self.priority, int):
            raise BadInput("generate", "priority", repr(self.priority), "a whole number")


NO_OPTIONS = RequestOptions()
