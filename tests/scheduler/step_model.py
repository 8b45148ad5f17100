"""An independent model of a step: memory is a dict, and every position read must hold its reader's own history."""

from __future__ import annotations

from collections.abc import Sequence as Sequence_
from dataclasses import dataclass, field

from samebits.scheduler import Sequence, StepPlan


@dataclass(eq=False)
class Track:
    """What a sequence must be, kept apart from the scheduler: its tokens, and the name of each one's history."""

    sequence: Sequence
    tokens: list[int]
    num_wanted: int  # tokens at which it ends
    histories: list[int] = field(default_factory=list)
    scored: list[int] = field(default_factory=list)  # positions since it was last admitted


class SlotModel:
    """A model whose state is the history it saw: at the last boundary, and beside that what came since.

    Histories are named by numbers, see `StepModel.name_histories`; -1 is that of no token.
    """

    def __init__(self, page_size: int) -> None:
        self.page_size = page_size
        self.states: dict[int, tuple[int, bytes]] = {}  # by slot: the history at the last boundary, and its salt
        self.rings: dict[int, list[int]] = {}  # by slot: histories since then

    def copy(self, plan: StepPlan) -> None:
        for copy in plan.slot_copies:
            assert copy.source != copy.target
            self.states[copy.target] = self.states.get(copy.source, (-2, b""))
            if not copy.resumable_only:
                self.rings[copy.target] = list(self.rings.get(copy.source, ()))

    def run(self, plan: StepPlan, tracks: dict[Sequence, Track]) -> None:
        """Every sequence goes on from its slot, which must hold what its own tokens leave behind."""
        slots = plan.batch.slots.tolist()
        assert slots == [s.slot for s in plan.sequences]
        assert len(set(slots)) == len(slots)
        for i, sequence in enumerate(plan.sequences):
            slot, stop = slots[i], int(plan.lengths[i])
            start = stop - int(plan.batch.qo_indptr[i + 1] - plan.batch.qo_indptr[i])
            histories, salt = tracks[sequence].histories, sequence.request.salt
            if start:
                assert (self.states.get(slot), start) == (self._state(histories, salt, start), start)
            if start % self.page_size:
                assert self.rings[slot] == histories[start - start % self.page_size : start]
            self.states[slot] = self._state(histories, salt, stop)
            self.rings[slot] = histories[stop - stop % self.page_size : stop]

    def spoil(self, plan: StepPlan) -> None:
        """A step that failed: its copies were not made, its slots hold anything."""
        for slot in (*plan.slots.tolist(), *(copy.target for copy in plan.slot_copies)):
            self.states.pop(slot, None)
            self.rings.pop(slot, None)

    def _state(self, histories: list[int], salt: bytes, num_computed: int) -> tuple[int, bytes]:
        boundary = num_computed - num_computed % self.page_size
        return (histories[boundary - 1] if boundary else -1), salt


class StepModel:
    """Writes and reads what a plan says. `windows`: positions that a query of each group sees, all where None.

    slots   what the slots of a model that has any hold; None for one that keeps all in pages
    """

    def __init__(self, page_size: int, windows: Sequence_[int | None], has_slots: bool = False) -> None:
        self.page_size, self.windows = page_size, windows
        self.slots = SlotModel(page_size) if has_slots else None
        self.memory: dict[tuple[int, int, int], tuple[int, bytes]] = {}  # by group, page and place
        self._names: dict[tuple[int, int], int] = {}

    def name_histories(self, track: Track) -> None:
        """One number for each token and all before it, the same wherever the same tokens came before."""
        for token in track.tokens[len(track.histories) :]:
            parent = track.histories[-1] if track.histories else -1
            track.histories.append(self._names.setdefault((parent, token), len(self._names)))

    def run(self, plan: StepPlan, tracks: dict[Sequence, Track]) -> dict[int, Sequence]:
        """Returns who wrote which page of the first group."""
        for copy in plan.copies:
            for place in range(self.page_size):
                held = self.memory.get((copy.group, copy.source, place), (-1, b""))
                self.memory[copy.group, copy.target, place] = held
        writers: list[dict[int, Sequence]] = [{} for _ in self.windows]
        for group in range(len(self.windows)):
            for i, sequence in enumerate(plan.sequences):
                self._write(plan, i, tracks[sequence], writers[group], group)
            assert 0 not in writers[group], "the null page is written"
            for i, sequence in enumerate(plan.sequences):
                self._read(plan, i, tracks[sequence], group)
        if self.slots is not None:
            self.slots.copy(plan)
            self.slots.run(plan, tracks)
        else:
            assert plan.slot_copies == ()
        self._check_rows(plan, tracks)
        return writers[0]

    def _pages(self, plan: StepPlan, i: int, group: int) -> list[int]:
        batch, window = plan.batch, self.windows[group]
        pages = batch.kv_indices if group == 0 or window is None else batch.window_indices[window]
        return pages[batch.kv_indptr[i] : batch.kv_indptr[i + 1]].tolist()

    def _span(self, plan: StepPlan, i: int) -> tuple[int, int]:
        """Tokens of sequence i in the step: [first, last) of the flat arrays."""
        return int(plan.batch.qo_indptr[i]), int(plan.batch.qo_indptr[i + 1])

    def _write(self, plan: StepPlan, i: int, track: Track, writers: dict[int, Sequence], group: int) -> None:
        first, last = self._span(plan, i)
        assert last > first, "a sequence without tokens"
        positions = plan.batch.positions[first:last].tolist()
        stop = positions[0] + last - first
        assert positions == list(range(positions[0], stop))
        assert plan.batch.batch_indices[first:last].tolist() == [i] * (last - first)
        assert plan.batch.token_ids[first:last].tolist() == track.tokens[positions[0] : stop]
        pages = self._pages(plan, i, group)
        assert len(pages) == -(-stop // self.page_size)
        assert plan.batch.kv_last_page_len[i] == stop - (len(pages) - 1) * self.page_size
        assert plan.lengths[i] == stop
        self.name_histories(track)
        for position in positions:
            page = pages[position // self.page_size]
            assert writers.setdefault(page, track.sequence) is track.sequence, f"{page} is written by two"
            held = (track.histories[position], track.sequence.request.salt)
            self.memory[group, page, position % self.page_size] = held

    def _read(self, plan: StepPlan, i: int, track: Track, group: int) -> None:
        """The salt is looked at too: a tenant's page is not read by another even where the tokens agree."""
        first, last = self._span(plan, i)
        start, pages = int(plan.batch.positions[first]), self._pages(plan, i, group)
        window = self.windows[group]
        oldest = 0 if window is None else max(0, start - window + 1)
        for position in range(oldest, start + last - first):
            held = self.memory.get((group, pages[position // self.page_size], position % self.page_size))
            wanted = (track.histories[position], track.sequence.request.salt)
            assert held == wanted, f"position {position} of {start + last - first} holds something else"

    def _check_rows(self, plan: StepPlan, tracks: dict[Sequence, Track]) -> None:
        last_token = {s: int(plan.batch.qo_indptr[i + 1]) - 1 for i, s in enumerate(plan.sequences)}
        complete = [s for i, s in enumerate(plan.sequences) if plan.lengths[i] == len(tracks[s].tokens)]
        assert plan.sampled == [s for s in complete if s.request.draws] + [child for _, child in plan.born]
        parents = {child: parent for parent, child in plan.born}
        for sequence, row in zip(plan.sampled, plan.sampled_rows.tolist(), strict=True):
            assert plan.batch.out_rows[row] == last_token[parents.get(sequence, sequence)]
        assert [s.sequence for s in plan.scored] == [
            s for i, s in enumerate(plan.sequences) if plan.batch.positions[plan.batch.qo_indptr[i]] < s.num_scored
        ]
        for part in plan.scored:
            i, seen = plan.sequences.index(part.sequence), tracks[part.sequence].scored
            first, last = self._span(plan, i)
            rows = plan.batch.out_rows[part.first_row : part.first_row + part.count].tolist()
            assert rows == list(range(first, last))
            if part.position == 0:
                seen.clear()  # it was preempted, and is computed from its start
            assert part.position == len(seen)
            seen.extend(range(part.position, part.position + part.count))
