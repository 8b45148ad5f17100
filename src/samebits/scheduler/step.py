"""A step's work: what the scheduler decided, laid out as a model's step reads it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from samebits.cache import PageCopy
from samebits.scheduler.request import Sequence


@dataclass(frozen=True, eq=False)
class Scored:
    """Logits rows first_row .. first_row + count - 1 are those of a sequence's tokens from `position` on."""

    sequence: Sequence
    first_row: int
    position: int
    count: int


@dataclass(frozen=True, eq=False)
class StepBatch:
    """What a model's step reads: int32 arrays over T tokens and B sequences. Names are those of the graph's inputs."""

    token_ids: np.ndarray  # [T]
    positions: np.ndarray  # [T]
    batch_indices: np.ndarray  # [T]
    qo_indptr: np.ndarray  # [B+1]
    kv_indptr: np.ndarray  # [B+1]
    kv_indices: np.ndarray  # [pages]
    kv_last_page_len: np.ndarray  # [B]
    out_rows: np.ndarray  # [R], tokens whose logits are wanted


@dataclass(frozen=True, eq=False)
class StepPlan(StepBatch):
    """A step as decided: `sampled[i]` gets a token drawn from logits row `sampled_rows[i]`.

    The last of them are born in this step and share their parent's row; as many as there are free slots, so that no
    step draws for more sequences than can run.
    """

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
    num_decodes: int

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def num_prefill_tokens(self) -> int:
        return self.num_tokens - self.num_decodes


def ranges(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(indptr [B+1], owner of each element, its number inside its range) of B ranges one after another."""
    indptr = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=indptr[1:])
    owners = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
    return indptr, owners, np.arange(indptr[-1], dtype=np.int32) - indptr[owners]
