"""An independent model of a step: memory is a dict, and every position read must hold its reader's own history."""

from __future__ import annotations

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


class StepModel:
    """Writes and reads what a plan says. `window`: positions before a query that it sees, all where None."""

    def __init__(self, page_size: int, window: int | None) -> None:
        self.page_size, self.window = page_size, window
        self.memory: dict[tuple[int, int], tuple[int, bytes]] = {}
        self._names: dict[tuple[int, int], int] = {}

    def name_histories(self, track: Track) -> None:
        """One number for each token and all before it, the same wherever the same tokens came before."""
        for token in track.tokens[len(track.histories) :]:
            parent = track.histories[-1] if track.histories else -1
            track.histories.append(self._names.setdefault((parent, token), len(self._names)))

    def run(self, plan: StepPlan, tracks: dict[Sequence, Track]) -> dict[int, Sequence]:
        """Returns who wrote which page."""
        for copy in plan.copies:
            for place in range(self.page_size):
                self.memory[copy.target, place] = self.memory.get((copy.source, place), (-1, b""))
        writers: dict[int, Sequence] = {}
        for i, sequence in enumerate(plan.sequences):
            self._write(plan, i, tracks[sequence], writers)
        assert 0 not in writers, "the null page is written"
        for i, sequence in enumerate(plan.sequences):
            self._read(plan, i, tracks[sequence])
        self._check_rows(plan, tracks)
        return writers

    def _pages(self, plan: StepPlan, i: int) -> list[int]:
        return plan.kv_indices[plan.kv_indptr[i] : plan.kv_indptr[i + 1]].tolist()

    def _span(self, plan: StepPlan, i: int) -> tuple[int, int]:
        """Tokens of sequence i in the step: [first, last) of the flat arrays."""
        return int(plan.qo_indptr[i]), int(plan.qo_indptr[i + 1])

    def _write(self, plan: StepPlan, i: int, track: Track, writers: dict[int, Sequence]) -> None:
        first, last = self._span(plan, i)
        assert last > first, "a sequence without tokens"
        positions = plan.positions[first:last].tolist()
        stop = positions[0] + last - first
        assert positions == list(range(positions[0], stop))
        assert plan.batch_indices[first:last].tolist() == [i] * (last - first)
        assert plan.token_ids[first:last].tolist() == track.tokens[positions[0] : stop]
        pages = self._pages(plan, i)
        assert len(pages) == -(-stop // self.page_size)
        assert plan.kv_last_page_len[i] == stop - (len(pages) - 1) * self.page_size
        assert plan.lengths[i] == stop
        self.name_histories(track)
        for position in positions:
            page = pages[position // self.page_size]
            assert writers.setdefault(page, track.sequence) is track.sequence, f"{page} is written by two"
            held = (track.histories[position], track.sequence.request.salt)
            self.memory[page, position % self.page_size] = held

    def _read(self, plan: StepPlan, i: int, track: Track) -> None:
        """The salt is looked at too: a tenant's page is not read by another even where the tokens agree."""
        first, last = self._span(plan, i)
        start, pages = int(plan.positions[first]), self._pages(plan, i)
        oldest = 0 if self.window is None else max(0, start - self.window)
        for position in range(oldest, start + last - first):
            held = self.memory.get((pages[position // self.page_size], position % self.page_size))
            wanted = (track.histories[position], track.sequence.request.salt)
            assert held == wanted, f"position {position} of {start + last - first} holds something else"

    def _check_rows(self, plan: StepPlan, tracks: dict[Sequence, Track]) -> None:
        last_token = {s: int(plan.qo_indptr[i + 1]) - 1 for i, s in enumerate(plan.sequences)}
        complete = [s for i, s in enumerate(plan.sequences) if plan.lengths[i] == len(tracks[s].tokens)]
        assert plan.sampled == [s for s in complete if not s.request.wants_all] + [child for _, child in plan.born]
        parents = {child: parent for parent, child in plan.born}
        for sequence, row in zip(plan.sampled, plan.sampled_rows.tolist(), strict=True):
            assert plan.out_rows[row] == last_token[parents.get(sequence, sequence)]
        assert [s.sequence for s in plan.scored] == [s for s in plan.sequences if s.request.wants_all]
        for part in plan.scored:
            i, seen = plan.sequences.index(part.sequence), tracks[part.sequence].scored
            first, last = self._span(plan, i)
            rows = plan.out_rows[part.first_row : part.first_row + part.count].tolist()
            assert rows == list(range(first, last))
            if part.position == 0:
                seen.clear()  # it was preempted, and is computed from its start
            assert part.position == len(seen)
            seen.extend(range(part.position, part.position + part.count))
