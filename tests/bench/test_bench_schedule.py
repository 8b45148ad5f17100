"""`samebits bench schedule`: the virtual clock, its requests, and the command as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bench_pages import check_page
from click.testing import CliRunner

from samebits.bench.guessing import Guessing
from samebits.bench.outcome import Outcome
from samebits.bench.simulate import Cost, Room, cost_of, policy_of, simulate
from samebits.bench.workload import Arrival, Mixture, long_prompt, mixed, prompts_of, read_arrivals
from samebits.cli.main import app
from samebits.core.errors import BadInput
from samebits.engine.drafts.pace import HOST

FLAT = Cost(base_ms=10.0, decode_ms=0.0, prefill_ms=1.0, pair_ms=0.0)
USUAL = Room()


def run_one(arrivals: tuple[Arrival, ...], budget: str = "dynamic", cost: Cost = FLAT, room: Room = USUAL) -> Outcome:
    return simulate(budget, policy_of(budget), arrivals, room, cost)


def command(*options: str) -> Any:
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, ["bench", "schedule", *options])


def test_the_clock_is_the_sum_of_steps() -> None:
    outcome = run_one((Arrival(5.0, 100, 3),))
    assert outcome.first_token_ms(1) == pytest.approx(110)
    assert outcome.gaps == pytest.approx([0.010, 0.010])
    assert outcome.seconds == pytest.approx(0.130)
    assert (outcome.num_steps, outcome.num_prompt_tokens, outcome.num_new_tokens) == (3, 100, 3)
    assert (outcome.peak_pages, outcome.num_preemptions) == (7, 0)
    assert outcome.tokens_per_second == pytest.approx(3 / 0.130)


def test_a_step_costs_its_tokens_and_the_positions_they_see() -> None:
    outcome = run_one((Arrival(0.0, 4, 2),), cost=Cost(base_ms=0.0, decode_ms=100.0, prefill_ms=1.0, pair_ms=10.0))
    assert outcome.first_token_ms(1) == pytest.approx(4 + 10 * (1 + 2 + 3 + 4))
    assert outcome.gap_ms(1) == pytest.approx(100 + 10 * 5)


def test_good_guesses_save_steps_and_bad_ones_are_soon_left() -> None:
    arrivals = (Arrival(0.0, 4, 200),)
    plain = run_one(arrivals)
    assert (plain.num_steps, plain.num_drafted) == (200, 0)
    right, wrong = (
        simulate("dynamic", policy_of("dynamic"), arrivals, USUAL, FLAT, Guessing(chance, HOST)) for chance in (1, 0)
    )
    assert right.num_steps < 40
    assert right.num_taken == right.num_drafted
    assert (wrong.num_steps, wrong.num_taken) == (200, 0)
    assert 0 < wrong.num_drafted < 20
    assert right.num_new_tokens == wrong.num_new_tokens == 200


def test_nothing_is_guessed_where_a_step_is_full() -> None:
    guessing = Guessing(1.0, HOST)
    simulate("dynamic", policy_of("dynamic"), (Arrival(0.0, 4, 50),) * 32, USUAL, FLAT, guessing)
    assert guessing.num_drafted == 0


def test_nothing_happens_between_requests() -> None:
    outcome = run_one((Arrival(0.0, 10, 1), Arrival(100.0, 10, 1)))
    assert outcome.num_steps == 2
    assert outcome.seconds == pytest.approx(100.020)
    assert outcome.gap_ms(1) == 0


def test_a_small_budget_shortens_the_worst_stall() -> None:
    worst = {budget: run_one(long_prompt(), budget, Cost()).gap_ms(1) for budget in ("dynamic", "256", "512", "off")}
    assert worst["256"] < worst["dynamic"] < worst["512"] < worst["off"]


def test_a_tight_cache_preempts_and_still_answers_all() -> None:
    arrivals = tuple(Arrival(0.0, 20, 100) for _ in range(4))
    outcome = run_one(arrivals, room=Room(max_len=160, num_pages=21))
    assert outcome.num_preemptions > 0
    assert outcome.num_new_tokens == 400
    assert outcome.peak_pages <= 20


def test_a_group_shares_its_prefix() -> None:
    first, second = Arrival(0.0, 50, 1, "g", 32), Arrival(9.0, 60, 1, "g", 40)
    one, two, other = prompts_of((first, second, Arrival(9.0, 60, 1)))
    assert np.array_equal(one[:32], two[:32])
    assert not np.array_equal(one[32:40], two[32:40])
    assert not np.array_equal(one[:8], other[:8])
    assert run_one((first, second)).num_cached_tokens == 32


def test_a_request_without_room_is_refused() -> None:
    with pytest.raises(BadInput, match=r"90 tokens and 20 new ones, but must be 100 at most"):
        run_one((Arrival(0.0, 90, 20),), room=Room(max_len=100))
    with pytest.raises(BadInput, match="room"):
        run_one(long_prompt(), room=Room(4096, 1 << 20))


def test_a_mixture_is_as_asked_and_the_same_each_time() -> None:
    mixture = Mixture(rate=20.0, seconds=50.0, prompt_lens=(10, 300), new_tokens=8, prefix_share=0.25, seed=3)
    arrivals = mixed(mixture)
    assert arrivals == mixed(mixture)
    assert 850 < len(arrivals) < 1150
    assert {a.prompt_tokens - a.prefix_tokens for a in arrivals} == {10, 300}
    assert {a.new_tokens for a in arrivals} == set(range(1, 16))
    assert 0.2 < np.mean([a.prefix_group is not None for a in arrivals]) < 0.3
    with pytest.raises(BadInput, match="requests at most"):
        mixed(Mixture(rate=1e6, seconds=1e6))


def test_recorded_requests_are_read_in_order_of_time(tmp_path: Path) -> None:
    file = tmp_path / "recorded.jsonl"
    file.write_text(
        '{"at_seconds": 2, "prompt_tokens": 9, "new_tokens": 1, "prefix_group": 7, "prefix_tokens": 5}\n\n'
        '{"at_seconds": 0.5, "prompt_tokens": 3, "new_tokens": 2}\n'
    )
    assert read_arrivals(file) == (Arrival(0.5, 3, 2), Arrival(2.0, 9, 1, "7", 5))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 2 is invalid JSON"),
        ("[" * 1000, "line 2 is invalid JSON"),
        ("\xff", "line 2 is invalid JSON"),
        ("[1, 2]", "must be an object of"),
        ('{"at_seconds": 0, "prompt_tokens": 1, "new_tokens": 1, "tokens": 1}', "must be an object of"),
        ('{"prompt_tokens": 1, "new_tokens": 1}', "at_seconds None"),
        ('{"at_seconds": NaN, "prompt_tokens": 1, "new_tokens": 1}', "at_seconds nan"),
        ('{"at_seconds": -1, "prompt_tokens": 1, "new_tokens": 1}', "at_seconds -1"),
        ('{"at_seconds": 0, "prompt_tokens": true, "new_tokens": 1}', "prompt_tokens True"),
        ('{"at_seconds": 0, "prompt_tokens": 1.5, "new_tokens": 1}', "prompt_tokens 1.5"),
        ('{"at_seconds": 0, "prompt_tokens": 1, "new_tokens": 99999999}', "new_tokens 99999999"),
        ('{"at_seconds": 0, "prompt_tokens": 5, "new_tokens": 1, "prefix_tokens": 2}', "prefix_tokens alone"),
        ('{"at_seconds": 0, "prompt_tokens": 5, "new_tokens": 1, "prefix_group": []}', r"prefix_group \[\]"),
        ('{"at_seconds": 0, "prompt_tokens": 5, "new_tokens": 1, "prefix_group": "g", "prefix_tokens": 6}', "0 to 5"),
        (" " * 2000, "too much at line 2"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, message: str) -> None:
    file = tmp_path / "recorded.jsonl"
    good = '{"at_seconds": 0, "prompt_tokens": 3, "new_tokens": 2}\n'
    file.write_bytes(good.encode() + line.encode("latin-1"))
    with pytest.raises(BadInput, match=message) as refused:
        read_arrivals(file)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("text", ["", "1,2,3", "1,2,3,x", "1,2,3,nan", "0,1,1,1", "-1,1,1,1", "1,1,1,1,1"])
def test_a_bad_cost_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="four numbers"):
        cost_of(text)


def test_the_commands_cost_is_the_default() -> None:
    assert cost_of("3,0.8,0.75,0.2") == Cost()


def test_the_command_shows_the_point(tmp_path: Path) -> None:
    page = tmp_path / "plot.html"
    result = command("--json", "--plot", str(page))
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    assert list(facts["policies"]) == ["dynamic", "256", "512", "off"]
    worst = {name: figures["gap_worst_ms"] for name, figures in facts["policies"].items()}
    assert worst["off"] > 4 * worst["dynamic"]
    assert "worst decode stall" in result.stderr
    check_page(page.read_text())
    assert page.read_text().count("<polyline") == 8


def test_the_command_takes_random_and_recorded_requests(tmp_path: Path) -> None:
    mixture = ("--rate", "5", "--seconds", "3", "--prompts", "10,20", "--new-tokens", "4", "--budgets", "off")
    result = command("--scenario", "mixed", *mixture)
    assert result.exit_code == 0, result.output
    file = tmp_path / "one.jsonl"
    file.write_text('{"at_seconds": 1, "prompt_tokens": 30, "new_tokens": 1}')
    page = tmp_path / "plot.html"
    result = command("--arrivals", str(file), "--budgets", "7", "--json", "--plot", str(page))
    assert json.loads(result.stdout)["policies"]["7"]["num_steps"] == 5
    check_page(page.read_text())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--scenario", "rush"), "unknown scenario 'rush'; known: long-prompt, mixed"),
        (("--budgets", "dynamic,some"), "prefill_budget is some"),
        (("--arrivals", "nowhere.jsonl"), "must be a file that can be read"),
        (("--plot", "nowhere/plot.html"), "a file in a folder that exists"),
    ],
)
def test_a_mistake_is_one_line(options: tuple[str, ...], message: str) -> None:
    result = command(*options)
    assert result.exit_code != 0
    assert message in str(result.exception)
