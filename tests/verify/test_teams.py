"""Teams of threads that cases and graphs are played with."""

from __future__ import annotations

from collections import Counter

import pytest
from hunt import TIERS, quick_tasks

from samebits.backends.reference import ReferenceBackend
from samebits.verify.examine import examine
from samebits.verify.graph_cases import GRAPH_CASES
from samebits.verify.model import GRAPH, Task, is_drawn
from samebits.verify.scenes import LIMITS, dims_of
from samebits.verify.select import prefix_of
from samebits.verify.teams import drawn_teams, team_sizes

NUM_ROWS = 60


class Recording(ReferenceBackend):
    """The reference, which keeps the numbers of threads that it is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[int] = []

    def set_threads(self, count: int) -> None:
        self.asked.append(count)


def teams_of(*tasks: Task) -> Counter[int]:
    backend = Recording()
    for task in tasks:
        assert {r.status for r in examine(backend, backend.probe(), task)} == {"pass"}
    return Counter(backend.asked)


@pytest.mark.parametrize("num_cpus", [1, 2, 8, 96])
def test_teams_are_small_ones_the_machine_s_and_large_ones(monkeypatch: pytest.MonkeyPatch, num_cpus: int) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: num_cpus)
    assert set(team_sizes()) == {2, 3, 8, 16, max(2, num_cpus)}


def test_a_case_with_a_name_is_played_with_every_team() -> None:
    assert teams_of(Task("recording", "split_heads", "small-f32", TIERS)).keys() >= {1, *team_sizes()}


def test_drawn_rows_share_the_teams_out_evenly() -> None:
    rows = [t for t in quick_tasks("split_heads") if is_drawn(t.case) and not prefix_of(t.case)][:NUM_ROWS]
    counts = teams_of(*rows)
    assert all(counts[team] >= len(rows) // len(team_sizes()) // 3 for team in team_sizes())


def test_a_graph_is_played_with_every_team_in_turn() -> None:
    teams = drawn_teams("chains-0", 0)
    assert sorted(next(teams) for _ in team_sizes()) == list(team_sizes())
    assert teams_of(Task("recording", GRAPH, "chains-0", TIERS)).keys() == set(team_sizes())


def test_chains_have_row_counts_of_their_own_and_the_last_of_them_twice() -> None:
    chains = [case for case in GRAPH_CASES if case.id.startswith("chains-")]
    counts = [[dims_of(step)["T"] for step in case.script(0)] for case in chains]
    assert len(set(map(tuple, counts))) == len(chains)
    assert all(c[-1] == c[-2] for c in counts)
    assert {n for c in counts for n in c} > set(range(1, 9))
    assert max(n for c in counts for n in c) == LIMITS.max_tokens
