"""How many threads a team runs with, decided from times that the tests make up: no clock, no thread."""

from __future__ import annotations

import pytest

from samebits.core.errors import Unavailable
from samebits.kernels.cpp import native

try:
    ThreadChoice = native().ThreadChoice
except Unavailable as error:
    pytest.skip(str(error), allow_module_level=True)

STEP = 0.003


def test_it_starts_with_all_threads_and_keeps_them_where_nobody_waits_long() -> None:
    choice = ThreadChoice(8)
    for waited in (0, 0.2, 0.45, 0.3) * 100:
        choice.ran(STEP, waited * STEP)
        assert choice.count == 8


def test_waiting_for_more_than_half_of_the_time_takes_half_of_the_threads_away() -> None:
    choice, counts = ThreadChoice(12), []
    for _ in range(5):
        choice.ran(STEP, 0.6 * STEP)
        counts.append(choice.count)
    assert counts[:3] == [6, 3, 1]


def test_a_single_interrupt_takes_none_away() -> None:
    choice = ThreadChoice(2)
    choice.ran(0.00015, 0.0001)
    assert choice.count == 2


def test_what_was_measured_long_ago_does_not_count() -> None:
    choice = ThreadChoice(2)
    for _ in range(100):
        choice.ran(STEP, 0)
    choice.ran(2 * STEP, 1.8 * STEP)
    assert choice.count == 1


def test_a_thread_without_a_processor_is_not_waited_for_again_at_once() -> None:
    choice = ThreadChoice(4)
    choice.missed(3, 0.0001)
    assert choice.count == 3
    choice.ran(0.00005, 0)
    assert choice.count == 3
    choice.ran(0.0001, 0)
    assert choice.count == 4


def lost_share(choice: ThreadChoice, seconds: float, stall: float) -> float:
    """Share of the time lost if every stretch on more than one thread waits for `stall` seconds at its end."""
    ran = lost = 0.0
    while ran < seconds:
        waited = stall if choice.count > 1 else 0.0
        choice.ran(0.001 + waited, waited)
        ran, lost = ran + 0.001 + waited, lost + waited
    return lost / ran


@pytest.mark.parametrize("stall", [0.003, 0.02, 0.3])
@pytest.mark.parametrize("most", [2, 3])
def test_attempts_on_busy_processors_cost_little(most: int, stall: float) -> None:
    choice = ThreadChoice(most)
    lost_share(choice, 100 * stall, stall)
    assert lost_share(choice, 200 * stall, stall) < 0.05


def test_all_threads_come_back_after_the_load_has_gone() -> None:
    choice = ThreadChoice(16)
    lost_share(choice, 2, 0.02)
    assert choice.count < 16
    ran = 0.0
    while choice.count < 16:
        choice.ran(STEP, 0)
        ran += STEP
    assert ran < 40 * 0.02  # the longest pause is 32 times what was lost

    # once these threads have kept their processors for long enough, attempts are as soon again as they were at first
    for _ in range(2000):
        choice.ran(STEP, 0)
    choice.ran(STEP + 0.02, 0.02)
    assert choice.count == 8
    choice.ran(0.021, 0)
    assert choice.count == 16


def test_the_number_grows_in_steps_up_to_the_most() -> None:
    choice, counts = ThreadChoice(6), []
    choice.missed(1, 0.0001)
    for _ in range(4):
        choice.ran(STEP, 0)
        counts.append(choice.count)
    assert counts == [2, 4, 6, 6]


def test_one_thread_is_never_fewer() -> None:
    choice = ThreadChoice(1)
    choice.ran(STEP, STEP)
    assert choice.count == 1
