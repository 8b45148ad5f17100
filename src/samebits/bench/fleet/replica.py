"""One engine of many in virtual time: the real scheduler and cache, a step at a time, or many decodes at once.

Where a step only decodes, so do all that follow until an answer ends or a request comes. Those steps are computed
together, as tokens that were guessed right are: the same pages are taken, and the clock moves as if one by one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from math import inf

import numpy as np

from samebits.bench.simulate import Cost, Room
from samebits.bench.workload import Arrival
from samebits.core.errors import BadInput
from samebits.scheduler import Policy, PromptRequest, Scheduler, StepPlan
from samebits.scheduler import Sequence as Sample

NO_LIMIT = 1 << 20  # guessed tokens of a step: only its buffers' size bounds them


@dataclass(eq=False, slots=True)
class Answer:
    """One request's, while its tokens come. Times are virtual seconds."""

    arrival: Arrival
    num_tokens: int = 0
    first_at: float = 0.0
    ended_at: float = 0.0
    num_cached_tokens: int = 0

    @property
    def num_left(self) -> int:
        return self.arrival.new_tokens - self.num_tokens


class Replica:
    """`due` is when it next has something to do, inf while it is idle; whoever plays it calls `go_on` then."""

    def __init__(self, room: Room, policy: Policy, cost: Cost) -> None:
        self._pages, self._cost = room.cache(), cost
        policy = replace(policy, draft_batch_tokens=NO_LIMIT)
        self.scheduler = Scheduler(self._pages, policy)
        self._most_tokens = policy.max_step_tokens(room.max_sequences)
        self._answers: dict[Sample, Answer] = {}
        self._inbox: list[tuple[Arrival, np.ndarray]] = []  # for the next step
        self._clock = 0.0
        self._plan: StepPlan | None = None  # the step under way
        self._ends: np.ndarray | None = None  # or the ends of the decodes under way, in seconds from the clock
        self.due = inf
        self.busy_seconds, self.num_requests = 0.0, 0

    @property
    def num_open(self) -> int:
        """Requests that it has, whatever became of them so far."""
        return len(self._answers) + len(self._inbox)

    def add(self, arrival: Arrival, prompt: np.ndarray) -> None:
        """A request comes, not before any earlier one and not after `due`. BadInput where it can never run."""
        if len(prompt) + arrival.new_tokens > self._pages.max_len:
            given = f"a prompt of {len(prompt)} tokens and {arrival.new_tokens} new ones"
            raise BadInput("bench", "request", given, f"{self._pages.max_len} at most: more --context, or more --pages")
        self._inbox.append((arrival, prompt))
        self.num_requests += 1
        if self.due == inf:
            self._clock = self.due = arrival.at_seconds  # others that come with it are in the same step
        elif self._ends is not None:  # the decode that is under way ends, then there is a prompt to compute
            num_begun = int(np.searchsorted(self._ends, arrival.at_seconds - self._clock)) + 1
            self._ends = self._ends[:num_begun]
            self.due = self._clock + float(self._ends[-1])

    def go_on(self) -> list[Answer]:
        """Ends what is under way and begins what comes next; the answers that ended."""
        ended: list[Answer] = []
        if self._ends is not None:
            ended = self._end_run(self._ends)
        elif (plan := self._plan) is not None:
            ended = self._commit(plan, np.ones(len(plan.sampled), np.int32), np.array([self.due - self._clock]))
            if not ended and not self._inbox and not plan.num_prefill_tokens and self._begin_run(plan):
                return ended
        self._begin()
        return ended

    def _begin(self) -> None:
        """Plans a step, if there is anything to do, with the requests that have come."""
        for arrival, prompt in self._inbox:
            self._answers[self.scheduler.add(PromptRequest(prompt))[0]] = Answer(arrival)
        self._inbox.clear()
        self._plan, self._ends = self.scheduler.plan(), None
        self.due = inf if self._plan is None else self._clock + self._cost.seconds(self._plan)

    def _begin_run(self, plan: StepPlan) -> bool:
        """Decodes until the first answer ends, if pages last that long: the step before was decodes alone."""
        count = min(self._answers[sample].num_left for sample in plan.sampled)
        slots = self.scheduler.slots
        if count < 2 or len(plan.sampled) != self.scheduler.num_running:
            return False
        short = self._pages.shortage(plan.slots, slots.known[plan.slots] + count)
        if int(np.maximum(short, 0).sum()) > self._pages.num_free:
            return False
        self._plan = None
        self._ends = self._cost.decode_ends(plan.num_decodes, int(slots.computed[plan.slots].sum()), count)
        self.due = self._clock + float(self._ends[-1])
        return True

    def _end_run(self, ends: np.ndarray) -> list[Answer]:
        """Takes the decodes of a run, as many at a time as a step has room for."""
        ended: list[Answer] = []
        done = 0
        while done < len(ends) and not ended:
            count = min(len(ends) - done, max(1, self._most_tokens // self.scheduler.num_running))
            guesses = np.zeros(count - 1, np.int32)
            plan = self.scheduler.plan(partial(_all_alike, guesses))
            if plan is None or plan.num_prefill_tokens:
                raise BadInput("bench", "simulation", "a prompt within a run of decodes", "decodes alone")
            before = ends[done - 1] if done else 0.0
            ended = self._commit(plan, plan.num_draws, ends[done : done + count] - before)
            done += count
        return ended

    def _commit(self, plan: StepPlan, counts: np.ndarray, ends: np.ndarray) -> list[Answer]:
        """Takes the tokens of steps that end so many seconds from the clock, counts[i] of plan.sampled[i]."""
        self.scheduler.commit(plan, np.zeros(int(counts.sum()), np.int32), counts)
        start, ended = self._clock, []
        self._clock += float(ends[-1])
        self.busy_seconds += float(ends[-1])
        for sample, count in zip(plan.sampled, counts.tolist(), strict=True):
            answer = self._answers[sample]
            if not answer.num_tokens:
                answer.first_at = start + float(ends[0])
            answer.num_tokens += count
            if not answer.num_left:
                answer.ended_at, answer.num_cached_tokens = self._clock, sample.num_cached_tokens
                self.scheduler.finish(sample)
                del self._answers[sample]
                ended.append(answer)
        return ended


def _all_alike(guesses: np.ndarray, sequences: list[Sample], room: int) -> list[np.ndarray]:
    """The same guesses for all; there is room for them."""
    return [guesses] * len(sequences)
