"""Guesses for a step: as many as there are room and pages for."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from samebits.cache import PageCache
from samebits.scheduler.request import Sequence
from samebits.scheduler.slots import Slots

Propose = Callable[[list[Sequence], int], list[np.ndarray]]


def put_drafts(slots: Slots, pages: PageCache, decodes: np.ndarray, room: int, propose: Propose) -> None:
    """Puts guesses behind the known tokens of slots that decode; nobody is preempted for them."""
    chosen = decodes[slots.may_draft(decodes)]
    if not len(chosen) or room < 1:
        return
    for slot, draft in zip(chosen.tolist(), propose([slots.at(s) for s in chosen], room), strict=True):
        known = int(slots.known[slot])
        count = min(len(draft), room, pages.max_len - known)
        if count > 0:
            count = pages.extend(slot, known + count) - known
            slots.put_draft(slot, draft[:count])
            room -= count
