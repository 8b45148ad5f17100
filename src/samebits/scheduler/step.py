"""A step's work: what the scheduler decided."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from samebits.cache import PageCopy, SlotCopy
from samebits.core.step import StepBatch
from samebits.scheduler.request import RUNNING, Sequence


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

    Where tokens were guessed, further ones are drawn from the rows behind, `num_draws[i]` in all: each is good if those
    before it are what was guessed. `guesses` has the guess for every draw, -1 for the last of each sequence.
    """

    batch: StepBatch
    slots: np.ndarray  # [B]
    sampled_at: np.ndarray  # which of the slots are those sampled that run already
    lengths: np.ndarray  # [B], tokens of each sequence that are computed after the step
    sequences: list[Sequence]
    sampled: list[Sequence]
    sampled_rows: np.ndarray  # [samples]
    num_draws: np.ndarray  # [samples], 1 or more
    guesses: np.ndarray  # int32 [draws]
    born: list[tuple[Sequence, Sequence]]  # (parent, sample)
    late: list[tuple[Sequence, Sequence]]  # those that find no slot: they will wait with their prompt
    scored: tuple[Scored, ...]
    copies: tuple[PageCopy, ...]  # to be made before the step
    slot_copies: tuple[SlotCopy, ...]  # and these, one after another
    num_decodes: int
    num_drafts: int  # guessed tokens beside the decodes
    sources: np.ndarray | None = None  # [B] of a plan made ahead: which draws of the step before are its tokens

    def of_those_running(self) -> tuple[StepPlan, np.ndarray]:
        """The plan of the sequences that have not ended since, each of which decodes; and which of them those are."""
        kept = np.array([i for i, s in enumerate(self.sequences) if s.state == RUNNING], np.int64)
        sequences = [self.sequences[i] for i in kept.tolist()]
        return replace(
            self,
            slots=self.slots[kept],
            sampled_at=np.arange(len(kept)),
            lengths=self.lengths[kept],
            sequences=sequences,
            sampled=sequences,
            sampled_rows=self.sampled_rows[kept],
            num_draws=self.num_draws[kept],
            guesses=self.guesses[kept],
        ), kept

    @property
    def sampled_slots(self) -> np.ndarray:
        """Of those sampled that run already."""
        return self.slots[self.sampled_at]

    @property
    def num_tokens(self) -> int:
        return len(self.batch.token_ids)

    @property
    def num_prefill_tokens(self) -> int:
        return self.num_tokens - self.num_decodes - self.num_drafts
