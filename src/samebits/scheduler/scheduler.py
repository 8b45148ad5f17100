"""Continuous batching: in every step all decodes, then prompts under a budget.

There are no phases: a sequence's computed tokens catch up with its known ones. One that is one token behind decodes;
one that is further behind takes chunks, which may end anywhere, since no bit depends on where.

Order is one number, arrival in steps plus priority times `priority_steps`: it never changes and only finitely many
later requests can get a smaller one, so nobody starves. The sequence with the largest is the victim when pages are
short; it waits with its tokens and computes them again.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Mapping
from dataclasses import replace

import numpy as np

from samebits.cache import Match, PageCache, PageCopy, Prefix, PrefixChain
from samebits.core.errors import BadInput
from samebits.scheduler.drafting import Propose, put_drafts
from samebits.scheduler.policy import Policy
from samebits.scheduler.request import FINISHED, RUNNING, UNBORN, WAITING, PromptRequest, Sequence
from samebits.scheduler.slots import Slots
from samebits.scheduler.step import StepPlan
from samebits.scheduler.waiting import WaitingQueue

SEQUENCES_A_RESERVED_PAGE = 4  # running sequences for each page that admission leaves free: they will grow


class Scheduler:
    """plan() decides a step, commit() takes its tokens. One thread at a time."""

    def __init__(self, pages: PageCache, policy: Policy, *, shares_prefixes: bool = True) -> None:
        self.pages, self.policy, self._shares_prefixes = pages, policy, shares_prefixes
        self.slots = Slots(pages)
        self._waiting = WaitingQueue()
        self._num_added = self._num_steps = 0
        self.num_preemptions = self.num_cached_tokens = 0

    @property
    def num_waiting(self) -> int:
        return self._waiting.count

    @property
    def num_running(self) -> int:
        return len(self.slots.running)

    def check(self, request: PromptRequest) -> None:
        """Raise BadInput if the request could never run."""
        longest = self.pages.max_len - request.draws
        if not 1 <= len(request.prompt) <= longest:
            raise BadInput("request", "prompt", f"{len(request.prompt)} tokens", f"1 .. {longest} tokens")
        if request.num_samples < 1:
            raise BadInput("request", "samples", request.num_samples, "1 or more")
        if request.expected is not None:
            most = self.pages.max_len - len(request.prompt) if request.draws and request.num_samples == 1 else 0
            if not 1 <= len(request.expected) <= most:
                raise BadInput("request", "expected", f"{len(request.expected)} tokens", f"1 .. {most} of one sample")

    def add(self, request: PromptRequest) -> list[Sequence]:
        """Queue a request; return its samples. Raise BadInput if it could never run."""
        self.check(request)
        self._num_added += 1
        order = (self._num_steps + request.priority * self.policy.priority_steps, self._num_added)
        samples = [
            Sequence(request, i, order, PrefixChain(self.pages.page_size, request.salt), request.prompt, UNBORN)
            for i in range(request.num_samples)
        ]
        samples[0].unborn = samples[1:]
        self._waiting.add(samples[0])
        return samples

    def plan(self, propose: Propose | None = None) -> StepPlan | None:
        """The next step, its pages assigned; None where there is nothing to do.

        propose   is given sequences that decode and the tokens for which there is room, all of them together; it
                  guesses what each draws next. Guesses beyond the room, or for which there are no pages, are cut off
        """
        self._num_steps += 1
        self._preempt_spoiled()
        self._make_way()
        copies: list[PageCopy] = []
        decodes = self._room_for_decodes(copies)
        chunks = self._chunks(self.policy.budget(len(decodes)))
        if not len(decodes) and not chunks:
            return None
        if propose is not None and len(decodes):
            num_chunk_tokens = sum(count for _, count in chunks)
            room = self.policy.draft_room(len(decodes), num_chunk_tokens, len(self.pages.tables))
            put_drafts(self.slots, self.pages, decodes, room, propose)
        return self.slots.lay_out(decodes, chunks, copies)

    def plan_ahead(self, plan: StepPlan, ending: Collection[Sequence]) -> StepPlan | None:
        """The step behind one that is still computed, whose commit comes later: all go on but those that end with it.

        Its `token_ids` are to be filled in with the draws `sources` of the step before. None where more is to be
        decided than who goes on: somebody could be admitted, is in the middle of a prompt, or finds no page.
        """
        slots = self.slots.in_order()
        if plan.num_drafts or plan.born or plan.late or plan.scored or self.pages.states is not None:
            return None
        if self._could_admit() or not self.slots.expect_nothing():
            return None
        draws = np.full(len(self.pages.tables), -1, np.int64)
        draws[plan.sampled_slots] = np.arange(len(plan.sampled_at))
        if (draws[slots] < 0).any():
            return None
        decodes = slots[[s not in ending for s in self.slots.running]] if ending else slots
        lengths = self.slots.known[decodes] + 1
        short = self.pages.shortage(decodes, lengths)
        if not len(decodes) or int(short.sum()) > self.pages.num_free:
            return None
        copies = self.pages.grow_all(decodes, lengths, short)
        self._num_steps += 1
        return replace(self.slots.lay_out(decodes, [], copies, num_pending=1), sources=draws[decodes])

    def commit(self, plan: StepPlan, tokens: np.ndarray, counts: np.ndarray | None = None) -> None:
        """Takes the step as computed. New samples fork off, or wait.

        plan.sampled[i] goes on with the next counts[i] of the tokens, one where counts are absent: guesses, and the
        token that was drawn after the last good one. What lies behind those was computed in vain: its pages are free.
        One with no token is about to end. Of a plan that was made ahead, those that ended since have no tokens here.
        """
        counts = np.ones(len(plan.sampled), np.int32) if counts is None else counts
        if plan.sources is not None:
            plan, kept = plan.of_those_running()
            counts = counts[kept]
        num_running = len(plan.sampled_at)
        lengths = plan.lengths.copy()
        lengths[plan.sampled_at] = self.slots.known[plan.sampled_slots] + counts[:num_running] - 1
        self.slots.computed[plan.slots] = lengths
        for i in self.pages.crossings(plan.slots, lengths).tolist():
            self._note(plan.sequences[i], int(lengths[i]))
        self._drop_refused(plan.slots[lengths < plan.lengths])
        self._take_snapshots(plan, lengths)
        num_own = int(counts[:num_running].sum())
        born = [pair for pair, count in zip(plan.born, counts[num_running:].tolist(), strict=True) if count]
        for (parent, child), token in zip(born, tokens[num_own:].tolist(), strict=True):
            self._fork(parent, child, token)
        for _, child in plan.late:
            self._waiting.add(child)
        for parent, _ in (*plan.born, *plan.late):
            parent.unborn = []
        self.slots.add_tokens(plan.sampled_slots, tokens[:num_own], counts[:num_running])

    def abandon(self, plan: StepPlan) -> None:
        """The step failed: what it was to write to slots is not believed, and those who need that compute it again.

        A model that keeps all in pages only forgets guesses: computing a step again writes the same there.
        """
        if plan.num_drafts:
            drafted = self.slots.drop_drafts(plan.slots[: plan.num_decodes])
            self.pages.trim(drafted, self.slots.known[drafted])
        if self.pages.states is not None:
            self.pages.states.spoil(plan.slots, plan.slot_copies)
            self._preempt_spoiled()

    def finish(self, sequence: Sequence) -> None:
        """Ends a sequence in any state and frees its pages; its `tokens` stay. Unborn samples end with it."""
        for child in sequence.unborn:
            child.state = FINISHED
        sequence.unborn = []
        if sequence.state == RUNNING:
            self._leave(sequence, FINISHED)
        elif sequence.state == WAITING:
            self._waiting.end(sequence)
        else:
            sequence.state = FINISHED

    def start_anew(self, tokens: Mapping[Sequence, np.ndarray], ended: Iterable[Sequence]) -> None:
        """Forget all pages, slots and prefixes, and queue sequences with the tokens that are known of them.

        Pages and slots may be half changed before, and this may be interrupted and called again. `tokens` has all
        sequences that go on; samples among them that wait for their prompt go on doing so.
        """
        for sequence in ended:
            sequence.slot, sequence.state, sequence.unborn = -1, FINISHED, []
        self.pages.clear()
        self.slots.clear()
        self._waiting = WaitingQueue()
        for sequence, known in tokens.items():
            sequence.slot, sequence.tokens = -1, known
            sequence.chain = PrefixChain(self.pages.page_size, sequence.request.salt)
            if sequence.state != UNBORN or sequence.sample_index == 0:
                self._waiting.add(sequence)

    def check_integrity(self) -> None:
        """BadInput where pages or sequences do not add up. For tests: it looks at everything."""
        self.pages.check_integrity()
        self._waiting.check_integrity()
        for s in self.slots.running:
            known, computed = int(self.slots.known[s.slot]), int(self.slots.computed[s.slot])
            if not (s.state == RUNNING and computed < known <= self.pages.num_held[s.slot] * self.pages.page_size + 1):
                raise BadInput("scheduler", "sequence", f"{computed} of {known} tokens", "pages for all but the last")

    def _prefixes(self, sequence: Sequence, num_computed: int) -> list[Prefix]:
        """Of a running sequence's full pages."""
        return sequence.chain.upto(self.slots.tokens[sequence.slot], num_computed // self.pages.page_size)

    def _note(self, sequence: Sequence, num_computed: int) -> None:
        self.pages.note(sequence.slot, self._prefixes(sequence, num_computed), num_computed)

    def _drop_refused(self, slots: np.ndarray) -> None:
        """More was computed of these slots than is good. Where states went on with it, they are not believed."""
        if not len(slots):
            return
        drafted = self.slots.drop_drafts(slots)
        self.pages.trim(drafted, self.slots.computed[drafted])
        if self.pages.states is not None:
            self.pages.states.spoil(slots, ())

    def _preempt_spoiled(self) -> None:
        states = self.pages.states
        if states is not None:
            for sequence in [s for s in self.slots.running if states.is_spoiled(s.slot)]:
                self._preempt(sequence)

    def _take_snapshots(self, plan: StepPlan, lengths: np.ndarray) -> None:
        """Where sequences came to a boundary that others may go on from."""
        states = self.pages.states
        if states is None:
            return
        for i in states.due(plan.slots, lengths).tolist():
            num_computed = int(lengths[i])
            states.reach(int(plan.slots[i]), self._prefixes(plan.sequences[i], num_computed), num_computed)

    def _room_for_decodes(self, copies: list[PageCopy]) -> np.ndarray:
        """Slots that decode in this step, with pages for it; as many as it takes are preempted."""
        while True:
            slots = self.slots.in_order()
            known = self.slots.known[slots]
            decodes = slots[known + self.slots.ahead[slots] - self.slots.computed[slots] == 1]
            lengths = self.slots.known[decodes]
            short = self.pages.shortage(decodes, lengths)
            if int(short.sum()) <= self.pages.num_free:
                break
            self._preempt(self.slots.running[-1])
        copies += self.pages.grow_all(decodes, lengths, short)
        return decodes

    def _chunks(self, budget: int) -> list[tuple[int, int]]:
        """(slot, tokens) of prompts that advance: running ones first, then new ones while pages and slots last."""
        cap, chunks = self.policy.chunk_cap(self.pages.max_len), []
        slots = self.slots.in_order()
        behind = self.slots.known[slots] + self.slots.ahead[slots] - self.slots.computed[slots]
        for i in np.flatnonzero(behind > 1).tolist():
            count = self._chunk(int(slots[i]), min(cap, budget))
            if count:
                chunks.append((int(slots[i]), count))
                budget -= count
        admissions = self._admissions()
        while budget and (slot := next(admissions, None)) is not None:
            count = self._chunk(slot, min(cap, budget))
            chunks.append((slot, count))
            budget -= count
        admissions.close()
        return chunks

    def _chunk(self, slot: int, most: int) -> int:
        """Tokens of a prompt that a step computes, of at most so many."""
        start, known = int(self.slots.computed[slot]), int(self.slots.known[slot])
        end = min(known + int(self.slots.ahead[slot]), start + most)
        if self.pages.states is not None and end > start:
            end = self.pages.states.chunk_end(slot, end, known)
        return end - start

    def _admissions(self) -> Generator[int, None, None]:
        """Slots of waiting sequences as they are admitted, in order, until one finds no room.

        One whose prefix a running sequence is about to compute lets others pass.
        """
        set_aside: list[Sequence] = []
        try:
            while (sequence := self._waiting.first()) is not None:
                match, prefixes = self._match(sequence)
                is_coming = self._is_coming(match, sequence)
                if is_coming or not self._fits(match):
                    set_aside.append(self._waiting.set_first_aside())
                    if is_coming:
                        self.pages.want(match, prefixes)
                        continue
                    return
                self._open(sequence, match, prefixes)
                yield sequence.slot
        finally:
            self._waiting.put_back(set_aside)

    def _match(self, sequence: Sequence) -> tuple[Match, list[Prefix]]:
        num_tokens = len(sequence.tokens)
        num_skipped = num_tokens - (sequence.request.expected is not None)  # the last token's logits are drawn from
        num_full = num_skipped // self.pages.page_size if self._is_shared(sequence) else 0
        prefixes = sequence.chain.upto(sequence.tokens, num_full)[:num_full]
        return self.pages.match(prefixes, sequence.num_reached), prefixes

    def _is_shared(self, sequence: Sequence) -> bool:
        return self._shares_prefixes and not sequence.num_scored

    def _is_coming(self, match: Match, sequence: Sequence) -> bool:
        """Whether more of its prefix is about to be computed by one that is not served after it."""
        return match.coming_slot is not None and not sequence < self.slots.at(match.coming_slot)

    def _fits(self, match: Match) -> bool:
        reserve = -(-len(self.slots.running) // SEQUENCES_A_RESERVED_PAGE)
        return bool(self.slots.num_free) and match.num_needed + reserve <= self.pages.num_free

    def _open(self, sequence: Sequence, match: Match, prefixes: list[Prefix]) -> None:
        """Admits the first that waits."""
        self._waiting.take_first()
        num_cached = self.pages.open(self.slots.next_free, match, prefixes, sequence.num_reached)
        sequence.num_cached_tokens = num_cached
        self.num_cached_tokens += num_cached
        self.slots.enter(sequence, num_cached)

    def _could_admit(self) -> bool:
        """Whether the first that waits might run in the next step."""
        first, running = self._waiting.first(), self.slots.running
        if first is None:
            return False
        if not running or first < running[-1]:
            return True
        match = self._match(first)[0]
        return self._fits(match) or (bool(self.slots.num_free) and self._is_coming(match, first))

    def _make_way(self) -> None:
        """Admits the first that waits where it is to be served before a running one, even in a step without budget.

        Later ones of a lower priority are preempted until it fits.
        """
        first = self._waiting.first()
        while first is not None and self.slots.running and first < (last := self.slots.running[-1]):
            match, prefixes = self._match(first)
            if self._is_coming(match, first):
                return
            if self._fits(match):
                self._open(first, match, prefixes)
                return
            if last.request.priority <= first.request.priority:
                return
            self._preempt(last)

    def _leave(self, sequence: Sequence, state: str) -> None:
        """Frees slot and pages; one that goes on from its last boundary, it or another, finds a snapshot of it."""
        num_computed = int(self.slots.computed[sequence.slot])
        count = num_computed // self.pages.page_size
        if self.pages.states is not None and count and self._is_shared(sequence):
            self.pages.states.save(sequence.slot, self._prefixes(sequence, num_computed)[count - 1])
        self.pages.close(sequence.slot)
        self.slots.leave(sequence, state)

    def _preempt(self, victim: Sequence) -> None:
        self._leave(victim, WAITING)
        victim.num_preemptions += 1
        self.num_preemptions += 1
        self._waiting.add(victim)

    def _fork(self, parent: Sequence, child: Sequence, token: int) -> None:
        """A sample starts beside its parent, in a slot that is free."""
        known = self.slots.tokens[parent.slot, : self.slots.known[parent.slot]]
        child.tokens, child.chain = np.append(known, np.int32(token)), parent.chain.copy()
        self.pages.fork(parent.slot, self.slots.next_free)
        self.slots.enter(child, len(known))
