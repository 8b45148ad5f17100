"""Drives a scheduler with made-up tokens and checks each step against the model and the promises of the policy."""

from __future__ import annotations

import numpy as np
from step_model import StepModel, Track

from samebits.cache import PageCache
from samebits.scheduler import Policy, PromptRequest, Scheduler, Sequence, StepPlan
from samebits.scheduler.request import FINISHED, RUNNING, UNBORN, WAITING


class Drive:
    """A scheduler, what its sequences must be, and memory for them."""

    def __init__(self, pages: PageCache, policy: Policy, *, shares_prefixes: bool = True) -> None:
        self.pages, self.policy = pages, policy
        self.scheduler = Scheduler(pages, policy, shares_prefixes=shares_prefixes)
        windows = (pages.window, *(group.window for group in pages.windows))
        self.model = StepModel(pages.page_size, windows, has_slots=pages.states is not None)
        self.tracks: dict[Sequence, Track] = {}
        self.num_steps = 0

    def add(self, prompt: list[int], num_new: int = 1, **options: object) -> list[Sequence]:
        """A request whose samples end after num_new tokens each, or where the cache does."""
        request = PromptRequest(np.array(prompt, np.int32), **options)  # type: ignore[arg-type]
        wanted = min(len(prompt) + num_new, self.pages.max_len) if request.draws else len(prompt)
        samples = self.scheduler.add(request)
        self.tracks.update({s: Track(s, list(prompt), wanted) for s in samples})
        return samples

    def live(self) -> list[Sequence]:
        return [s for s in self.tracks if s.state != FINISHED]

    def cancel(self, sequence: Sequence) -> None:
        self.scheduler.finish(sequence)
        self.scheduler.check_integrity()

    def step(self) -> StepPlan | None:
        """One step, checked; sequences that have what they want end."""
        running = list(self.scheduler.slots.running)
        behind_one = {s: s.num_preemptions for s in running if self._num_behind(s) == 1}
        first = min((s for s in self.live() if s.state in (RUNNING, WAITING)), default=None)
        plan = self.scheduler.plan()
        self.scheduler.check_integrity()
        if plan is None or first is None:
            assert plan is first is None
            return None
        self._check_promises(plan, behind_one)
        self._check_first(plan, first, running)
        self._check_writers(self.model.run(plan, self.tracks))
        self.num_steps += 1
        self._commit(plan)
        self.scheduler.check_integrity()
        return plan

    def fail_step(self, ends: bool = True) -> None:
        """A step whose kernels fail: its requests end, or go on where slots are kept; the others must not notice."""
        plan = self.scheduler.plan()
        if plan is None:
            return
        if self.model.slots is not None:
            self.model.slots.spoil(plan)
        self.scheduler.abandon(plan)
        if ends or self.model.slots is None:
            for sequence in [s for s in self.live() if s.request in {p.request for p in plan.sequences}]:
                self.scheduler.finish(sequence)
                del self.tracks[sequence]
        self.scheduler.check_integrity()

    def start_anew(self, ends: bool) -> None:
        """An interrupt left anything in pages, slots and the queue; the sequences that run end, or all go on."""
        running = {s.request for s in self.live() if s.state == RUNNING} if ends else set()
        ended = [s for s in self.live() if s.request in running]
        for sequence in ended:
            del self.tracks[sequence]
        self._garble()
        tokens = {s: np.array(self.tracks[s].tokens, np.int32) for s in self.live()}
        self.scheduler.start_anew(tokens, ended)
        assert all(s.state == FINISHED for s in ended)
        assert self.pages.num_used == self.scheduler.num_running == 0
        self.scheduler.check_integrity()

    def _garble(self) -> None:
        pages, slots = self.pages, self.scheduler.slots
        for array in (pages.num_held, slots.known, slots.computed, slots.ahead, *(g._stop for g in pages.windows)):
            array[:] = 3
        pages.pool._blank.clear()
        pages._coming[b"nobody"] = 0
        slots.running[1:] = slots.running[:1]
        self.scheduler._waiting.count += 1
        if pages.states is not None:
            pages.states._cuts[1] = {5: b"nobody"}

    def drain(self) -> None:
        """Steps until all have ended, and that in bounded time: in every step the first of all gets a token further."""
        bound = sum(track.num_wanted + 1 for track in self.tracks.values())
        start = self.num_steps
        while self.step():
            assert self.num_steps - start <= bound, "somebody starves"
        assert self.scheduler.num_waiting == self.scheduler.num_running == 0
        assert self.pages.num_used == 0
        for sequence, track in self.tracks.items():
            assert sequence.state == FINISHED
            assert sequence.tokens.tolist() == track.tokens

    def _num_behind(self, sequence: Sequence) -> int:
        slots = self.scheduler.slots
        return int(slots.known[sequence.slot] - slots.computed[sequence.slot])

    def _check_promises(self, plan: StepPlan, behind_one: dict[Sequence, int]) -> None:
        assert plan.num_tokens <= self.policy.max_step_tokens(len(self.pages.tables))
        assert plan.num_prefill_tokens <= self.policy.budget(plan.num_decodes)
        assert len(plan.sampled) <= len(self.pages.tables), "more are drawn than can run"
        decodes = plan.sequences[: plan.num_decodes]
        for sequence, num_preemptions in behind_one.items():
            if sequence.num_preemptions == num_preemptions:
                assert sequence in decodes, "a decode is left out"

    def _check_first(self, plan: StepPlan, first: Sequence, running: list[Sequence]) -> None:
        """The first of all, or a sample beside it, advances; it waits only for a slot or pages of its own priority."""
        if not any(s.order == first.order for s in plan.sequences):
            assert first not in running, "the first of all does not advance"
            assert running[-1].request.priority <= first.request.priority, "a lower priority is in the way"

    def _check_writers(self, writers: dict[int, Sequence]) -> None:
        """What is written is in nobody else's table, whether that one is in the step or not."""
        for other in self.scheduler.slots.running:
            for page in self.pages.tables[other.slot, : self.pages.num_held[other.slot]].tolist():
                assert writers.get(page, other) is other, f"{page} is written and shared"

    def _commit(self, plan: StepPlan) -> None:
        """Two kinds of tokens, by a rule that makes samples of one prompt agree for a while."""
        tokens = [(self.num_steps // 3 + s.sample_index * (self.num_steps % 2)) % 2 for s in plan.sampled]
        for parent, child in plan.born:
            assert child.state == UNBORN
            self.tracks[child].tokens = list(self.tracks[parent].tokens)
        self.scheduler.commit(plan, np.array(tokens, np.int32))
        assert all(child.state == WAITING for _, child in plan.late)
        for sequence, token in zip(plan.sampled, tokens, strict=True):
            self.tracks[sequence].tokens.append(token)
        for sequence in [*plan.sequences, *(child for _, child in plan.born)]:
            track = self.tracks[sequence]
            has_rows = track.scored[: sequence.num_scored] == list(range(sequence.num_scored))
            if has_rows and len(track.tokens) >= track.num_wanted:
                self.scheduler.finish(sequence)
