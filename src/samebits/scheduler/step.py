"""A step's work: what the scheduler decided."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from samebits.cache import PageCopy, SlotCopy
from samebits.core.step import StepBatch
from samebits.scheduler.request import Sequence


@dataclass(frozen=True, eq=False)
class Scored:
    """Logits rows first_row .. first_row + count - 1 are those of a sequence's tokens from `position` on."""

    sequence: Sequence
    first_row: int
    position: int
    count: int


@dataclass(frozen=True, eq=False)
class StepPlan:
    """A step as decided: the model reads `batch`; `sampled[i]` gets a token drawn from logits row `sampled_rows[i]`.

    The last of them are born in this step and share their parent's row; as many as there are free slots, so that no
    step draws for more sequences than can run.
    """

    batch: StepBatch
    slots: np.ndarray  # [B]
    sampled_slots: np.ndarray  # of those sampled that run already
    lengths: np.ndarray  # [B], tokens of each sequence that are computed after the step
    sequences: list[Sequence]
    sampled: list[Sequence]
    sampled_rows: np.ndarray  # [samples]
    born: list[tuple[Sequence, Sequence]]  # (parent, sample)
    late: list[tuple[Sequence, Sequence]]  # those that find no slot: they will wait with their prompt
    scored: tuple[Scored, ...]
    copies: tuple[PageCopy, ...]  # to be made before the step
    slot_copies: tuple[SlotCopy, ...]  # and these, one after another
    num_decodes: int

    @property
    def num_tokens(self) -> int:
        return len(self.batch.token_ids)

    @property
    def num_prefill_tokens(self) -> int:
        return self.num_tokens - self.num_decodes
