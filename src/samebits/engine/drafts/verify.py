"""A step's draws: guesses that a sequence draws itself are taken, and the token that it draws behind the last of them.

A draw depends on logits, parameters, seed, sample and position alone. So the token drawn from a row is the one that
would be drawn there without guesses, as long as all tokens before it are those that were guessed.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Sequence_
from typing import NamedTuple

import numpy as np

from samebits.engine.answer import Answer
from samebits.engine.delivery import Delivery, Run
from samebits.engine.runner import StepResult
from samebits.engine.sampler import Asked, Drawn, Sampler
from samebits.scheduler import StepPlan


class Taken(NamedTuple):
    """What a step's sequences go on with: counts[i] tokens of plan.sampled[i], one sequence after another."""

    tokens: np.ndarray  # int32 [sum of counts]
    counts: np.ndarray  # int32 [samples]


def draw_and_deliver(
    plan: StepPlan,
    result: StepResult,
    sampler: Sampler,
    answers: Sequence_[Answer],
    delivery: Delivery,
    when_drawn: Callable[[np.ndarray], None] | None = None,
) -> Taken:
    """Draws for all of plan.sampled, whose answers these are, and hands out every token in its order.

    when_drawn   is given the tokens, one of each, before they are handed out. Logits are not looked at after it

    Plain answers draw from all their rows at once. The next draw of shaped ones depends on the token before, so they
    draw in rounds, all of them together, as long as they meet their guesses.
    """
    offsets = np.cumsum(plan.num_draws) - plan.num_draws  # where each one's draws begin
    is_shaped = np.array([answer.is_shaped for answer in answers], bool)
    num_first = np.where(is_shaped, 1, plan.num_draws)
    drawn = sampler.draw(result, Asked.of(plan.sampled_rows, num_first, answers))
    if when_drawn is not None:
        when_drawn(drawn.tokens)
    starts = np.cumsum(num_first) - num_first
    for i in np.flatnonzero(np.isin(starts, list(drawn.failures))).tolist():
        delivery.fail(plan.sampled[i], drawn.failures[int(starts[i])])
    for scored in plan.scored:  # ahead of the tokens, which may end their job
        delivery.give_rows(scored)
    tokens = _good(drawn, _guesses(plan, offsets, num_first), starts, num_first)
    runs = [Run(*run) for run in zip(plan.sampled, plan.sampled_rows.tolist(), tokens, strict=True)]
    counts = delivery.give(runs)
    taken = [run[:count] for run, count in zip(tokens, counts, strict=True)]
    open_at = np.flatnonzero(is_shaped & (plan.num_draws > 1)).tolist()
    while open_at := [i for i in open_at if _goes_on(plan, i, taken[i], int(offsets[i]), delivery)]:
        _draw_next(plan, result, sampler, answers, delivery, open_at, taken)
    flat = [token for run in taken for token in run]
    return Taken(np.array(flat, np.int32), np.array([len(run) for run in taken], np.int32))


def _guesses(plan: StepPlan, offsets: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The guesses for the first counts[i] draws of each sequence; -1 for the last of them."""
    if len(plan.guesses) == counts.sum():
        return plan.guesses
    is_kept = np.zeros(len(plan.guesses), bool)
    asked = Asked.of(offsets, counts, ())
    is_kept[asked.rows] = True
    found = plan.guesses[is_kept]
    found[np.cumsum(counts) - 1] = -1
    return found


def _good(drawn: Drawn, guesses: np.ndarray, starts: np.ndarray, counts: np.ndarray) -> list[list[int]]:
    """Tokens of each sequence up to the first that is not what was guessed, that one included.

    Up to one that could not be drawn, that one excluded: the next step fails there, if it comes to it.
    """
    tokens = drawn.tokens.tolist()
    if len(tokens) == len(counts) and not drawn.failures:
        return [[token] for token in tokens]
    is_last = drawn.tokens != guesses
    is_last[list(drawn.failures)] = True
    lasts = np.flatnonzero(is_last)
    ends = lasts[np.searchsorted(lasts, starts)]
    failed = drawn.failures.keys()
    pairs = zip(starts.tolist(), ends.tolist(), strict=True)
    return [tokens[start : end + (end not in failed)] for start, end in pairs]


def _goes_on(plan: StepPlan, i: int, taken: list[int], offset: int, delivery: Delivery) -> bool:
    """Whether a shaped sequence draws once more: all its tokens so far are what was guessed, and it has not ended."""
    count = len(taken)
    if not 0 < count < plan.num_draws[i] or delivery.open_job(plan.sampled[i]) is None:
        return False
    return taken[-1] == int(plan.guesses[offset + count - 1])


def _draw_next(
    plan: StepPlan,
    result: StepResult,
    sampler: Sampler,
    answers: Sequence_[Answer],
    delivery: Delivery,
    open_at: list[int],
    taken: list[list[int]],
) -> None:
    """A round: one more token for each of open_at, added to `taken`; those that fail are left out of open_at."""
    rows = np.array([int(plan.sampled_rows[i]) + len(taken[i]) for i in open_at])
    drawn = sampler.draw(result, Asked.of(rows, np.ones(len(rows), np.int32), [answers[i] for i in open_at]))
    tokens = drawn.tokens.tolist()
    good = [at for at in range(len(open_at)) if at not in drawn.failures]
    delivery.give([Run(plan.sampled[open_at[at]], int(rows[at]), [tokens[at]]) for at in good])
    for at in good:
        taken[open_at[at]].append(tokens[at])
    open_at[:] = [open_at[at] for at in good]
