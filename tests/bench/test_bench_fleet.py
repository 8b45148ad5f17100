"""Many replicas in virtual time: what is skipped changes nothing, policies do what they say, figures are repeatable."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from bench_pages import check_page
from click.testing import CliRunner

from samebits.bench.fleet.play import play
from samebits.bench.fleet.prefix_index import PrefixIndex
from samebits.bench.fleet.replica import Replica
from samebits.bench.fleet.routing import MOST_AHEAD, PowerOfTwo, PrefixAware
from samebits.bench.fleet.sweep import numbers_of_replicas
from samebits.bench.fleet.workload import Groups, grouped
from samebits.bench.simulate import Cost, Room, simulate
from samebits.bench.workload import Arrival, long_prompt, prompts_of
from samebits.cache import PrefixChain
from samebits.cli.main import app
from samebits.core.errors import BadInput, UnknownName
from samebits.scheduler import Policy

SMALL = Groups(rate=4.0, seconds=6.0, prompt_lens=(5, 40, 90), new_tokens=30, num_groups=3, prefix_tokens=64)
COST = Cost(2.0, 0.3, 0.1, 0.0002)
ROOMS = {
    "ample": Room(max_sequences=16, max_len=512),
    "few slots": Room(max_sequences=3, max_len=512),
    "few pages": Room(max_sequences=16, max_len=256, num_pages=24),
}


@pytest.mark.parametrize("room", ROOMS)
@pytest.mark.parametrize("budget", ["dynamic", 16, "off"])
def test_one_replica_does_what_the_scheduler_does_step_by_step(room: str, budget: int | str) -> None:
    arrivals, policy = grouped(replace(SMALL, rate=12.0), 1), Policy(prefill_budget=budget)
    exact = simulate("exact", policy, arrivals, ROOMS[room], COST)
    found = play("prefix-aware", 1, arrivals, ROOMS[room], policy, COST, 0)
    assert found.num_requests == len(arrivals)
    assert found.num_new_tokens == exact.num_new_tokens
    assert found.num_preemptions == exact.num_preemptions
    assert found.seconds == pytest.approx(exact.seconds, rel=1e-9)
    warm = len(arrivals) - len(arrivals) // 4
    assert len(found.first_tokens) == warm
    everything = play("random", 1, arrivals, ROOMS[room], policy, COST, 5)
    assert everything.seconds == found.seconds


def test_few_pages_preempt_and_few_slots_let_wait() -> None:
    """The rooms above are what they are called."""
    arrivals = grouped(replace(SMALL, rate=12.0), 1)
    assert play("random", 1, arrivals, ROOMS["few pages"], Policy(), COST, 0).num_preemptions
    waits = [play("random", 1, arrivals, ROOMS[name], Policy(), COST, 0).first_token_ms(1) for name in ROOMS]
    assert waits[1] > 2 * waits[0]


def test_a_prompt_that_comes_within_a_run_of_decodes_starts_after_the_step_under_way() -> None:
    arrivals = long_prompt()
    exact = simulate("exact", Policy(), arrivals, Room(), Cost())
    found = play("random", 1, arrivals, Room(), Policy(), Cost(), 0)
    assert found.seconds == pytest.approx(exact.seconds, rel=1e-9)
    assert found.first_token_ms(1) == pytest.approx(exact.first_token_ms(1), rel=1e-9)


def test_the_same_seed_gives_the_same_figures_and_another_one_others() -> None:
    def figures(groups: Groups) -> list[float]:
        outcome = play("power-of-two", 5, grouped(groups, 5), ROOMS["ample"], Policy(), COST, groups.seed)
        return [outcome.seconds, outcome.hit_rate, *outcome.first_tokens]

    assert figures(SMALL) == figures(SMALL)
    assert figures(SMALL) != figures(replace(SMALL, seed=1))


def test_prefix_aware_routing_finds_more_than_the_others() -> None:
    arrivals = grouped(SMALL, 8)
    names = ("random", "power-of-two", "prefix-aware")
    *others, aware = (play(name, 8, arrivals, ROOMS["ample"], Policy(), COST, 0) for name in names)
    assert aware.hit_rate > 1.3 * max(outcome.hit_rate for outcome in others)


def test_the_less_busy_of_two_keeps_queues_short() -> None:
    arrivals, slow = grouped(replace(SMALL, seconds=4.0), 8), Cost(10.0, 1.0, 0.5, 0.0)
    at_random, of_two = (
        play(name, 8, arrivals, ROOMS["few slots"], Policy(), slow, 0) for name in ("random", "power-of-two")
    )
    assert at_random.busy_share > 0.5
    assert of_two.first_token_ms(0.99) < 0.8 * at_random.first_token_ms(0.99)


def test_a_group_that_is_too_hot_for_one_replica_spills_over() -> None:
    arrivals = grouped(replace(SMALL, num_groups=1, rate=60.0, seconds=2.0), 4)
    hot = tuple(replace(a, prefix_group="hot") for a in arrivals)
    outcome = play("prefix-aware", 4, hot, ROOMS["ample"], Policy(), COST, 0)
    assert outcome.busiest < 2  # of 4 replicas


def test_an_index_knows_what_the_replicas_hold() -> None:
    room = ROOMS["few pages"]
    replicas = [Replica(room, Policy(), COST) for _ in range(11)]
    router = PrefixAware(replicas, room.page_size, 0)
    arrivals = grouped(SMALL, 11)
    for arrival, prompt in zip(arrivals, prompts_of(arrivals), strict=True):
        for replica in replicas:
            while replica.due < arrival.at_seconds:
                replica.go_on()
        replicas[router.choose(prompt)].add(arrival, prompt)
    held: dict[bytes, int] = {}
    for number, replica in enumerate(replicas):
        for prefix in replica.scheduler.pages.pool._prefix_of.values():
            held[prefix.digest] = held.get(prefix.digest, 0) | 1 << number
    assert router.index._holders == held
    assert router.index.num_entries == sum(bits.bit_count() for bits in held.values())
    assert sum(r.scheduler.pages.pool.num_evicted for r in replicas) > 0


def test_the_longest_prefix_is_looked_up_page_by_page() -> None:
    index, prefixes = PrefixIndex(), PrefixChain(4).upto(np.arange(16, dtype=np.int32), 4)
    for number, count in ((0, 1), (3, 3), (9, 3)):
        for prefix in prefixes[:count]:
            index.listener(number).stored(None, prefix.digest, prefix.tokens)
    assert index.longest(prefixes) == 1 << 3 | 1 << 9
    assert index.num_probes == 4
    index.listener(3).removed(prefixes[1].digest)
    assert index.longest(prefixes) == 1 << 9
    assert index.longest(PrefixChain(4, b"salt").upto(np.arange(16, dtype=np.int32), 4)) == 0


def test_policies_choose_by_load() -> None:
    room = ROOMS["ample"]
    replicas = [Replica(room, Policy(), COST) for _ in range(2)]
    prompt = np.arange(40, dtype=np.int32)
    for _ in range(MOST_AHEAD):
        replicas[0].add(Arrival(0.0, 40, 5), prompt)
    router = PowerOfTwo(replicas, room.page_size, 0)
    chosen = [router.choose(prompt) for _ in range(200)]
    assert 0.6 < sum(chosen) / 200 < 0.9  # both are asked for three times out of four at least
    aware = PrefixAware(replicas, room.page_size, 0)
    for prefix in PrefixChain(room.page_size).upto(prompt, 2):
        aware.index.listener(0).stored(None, prefix.digest, prefix.tokens)
    assert {aware.choose(prompt) for _ in range(50)} == {0}
    replicas[0].add(Arrival(0.0, 40, 5), prompt)
    assert {aware.choose(prompt) for _ in range(50)} == {0, 1}


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("1..1000", (1, 3, 10, 30, 100, 300, 1000)), ("5..40", (5, 10, 30, 40)), ("8,2", (2, 8)), ("7..7", (7,))],
)
def test_numbers_of_replicas(text: str, numbers: tuple[int, ...]) -> None:
    assert numbers_of_replicas(text) == numbers


@pytest.mark.parametrize("text", ["", "0", "9..3", "1..", "a", "1,,2", "1..20000", "-1", "1.5"])
def test_other_texts_are_no_numbers_of_replicas(text: str) -> None:
    with pytest.raises(BadInput, match="--replicas"):
        numbers_of_replicas(text)


def test_what_can_never_be_answered_is_refused() -> None:
    with pytest.raises(BadInput, match="more --context"):
        play("random", 2, (Arrival(0.0, 600, 5),), ROOMS["ample"], Policy(), COST, 0)
    with pytest.raises(BadInput, match="requests at most"):
        grouped(replace(SMALL, rate=1e6), 1000)
    with pytest.raises(UnknownName, match="prefix-aware"):
        play("nearest", 2, grouped(SMALL, 2), ROOMS["ample"], Policy(), COST, 0)


def bench(*options: str) -> str:
    result = CliRunner().invoke(app, ["bench", "schedule", *options])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_command_prints_writes_and_draws(tmp_path: Path) -> None:
    written, picture, page = tmp_path / "out.json", tmp_path / "plot.svg", tmp_path / "plot.html"
    options = ["--replicas", "1..3", "--seconds", "3", "--rate", "3", "--prompts", "20,60", "--group-tokens", "64"]
    options += ["--cost", "2,0.3,0.1,0.2", "--context", "512", "--new-tokens", "10"]
    told = json.loads(bench(*options, "--json", "--output", str(written), "--plot", str(picture)))
    assert told == json.loads(written.read_text())
    rows = [(row["num_replicas"], row["routing"]) for row in told["replicas"]]
    assert rows == [(n, name) for n in (1, 3) for name in ("random", "power-of-two", "prefix-aware")]
    assert all(0 <= row["hit_percent"] <= 100 and row["tokens_per_second"] > 0 for row in told["replicas"])
    root = ElementTree.fromstring(picture.read_text())
    assert len(root.findall(".//{http://www.w3.org/2000/svg}polyline")) == 9
    text = bench(*options, "--routing", "random", "--plot", str(page))
    assert "hits, %" in text
    assert "what the router" not in text
    check_page(page.read_text())
    assert "<polyline" in page.read_text()
    assert json.loads(bench(*options, "--json")) == told


def test_recorded_requests_are_played(tmp_path: Path) -> None:
    lines = [{"at_seconds": i / 10, "prompt_tokens": 40, "new_tokens": 4} for i in range(20)]
    (tmp_path / "recorded.jsonl").write_text("\n".join(map(json.dumps, lines)))
    told = json.loads(bench("--replicas", "2", "--arrivals", str(tmp_path / "recorded.jsonl"), "--json"))
    assert {row["num_requests"] for row in told["replicas"]} == {20}
    assert told["workload"] == "20 recorded requests"


def test_several_budgets_do_not_go_with_replicas() -> None:
    result = CliRunner().invoke(app, ["bench", "schedule", "--replicas", "2", "--budgets", "dynamic,off"])
    assert isinstance(result.exception, BadInput)
    assert "a single one, with --replicas" in str(result.exception)
