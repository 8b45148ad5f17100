"""A case that `samebits verify` draws catches each planted defect. A sound backend passes where defects are caught."""

from __future__ import annotations

import json

import pytest
from defects import PLANTED, backend_name
from hunt import CAUGHT, cost, played, quick_cases, tiers_of
from planted_base import EVERY_OP, Defect

from samebits.verify.examine import examine
from samebits.verify.model import GRAPH, Task
from samebits.verify.select import prefix_of

FOUND: dict[str, dict[str, str]] = json.loads(CAUGHT.read_text())


class Sound(Defect):
    """Everything that planted backends have but a defect."""

    ops = EVERY_OP


def cheapest_cases() -> list[Task]:
    """Return for each op the cheapest of the cases that catch something by the same check in the same way to run."""
    found: dict[tuple[str, str, str], Task] = {}
    for defect in FOUND.values():
        task = Task("sound", defect["op"], defect["case"], ("portable",))
        key = (defect["op"], defect["check"], prefix_of(defect["case"]))
        if task.op != GRAPH and "soak:" not in task.case and (key not in found or cost(task) < cost(found[key])):
            found[key] = task
    return list(found.values())


def test_each_has_been_hunted() -> None:
    assert FOUND.keys() == PLANTED.keys(), "python tests/verify/hunt.py renews caught.json"


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # values that a defect makes overflow
@pytest.mark.parametrize("name", FOUND)
def test_a_drawn_case_catches_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Finding the node to blame takes a fifth of the time; test_verify_programs.py looks at it.
    monkeypatch.setattr("samebits.verify.graphs.blame", lambda *_: "")
    found = FOUND[name]
    task = Task(backend_name(PLANTED[name]), found["op"], found["case"], tiers_of(name), is_long=found["set"] == "full")
    assert played(name, found.get("after", ""), task).get("check") == found["check"]


@pytest.mark.parametrize("op", sorted({found["op"] for found in FOUND.values()}))
def test_a_quick_run_plays_the_cases_that_catch(op: str) -> None:
    cases = {found["case"] for found in FOUND.values() if (found["op"], found["set"]) == (op, "quick")}
    assert cases <= quick_cases(op), "python tests/verify/hunt.py --stale finds the cases of today"


@pytest.mark.parametrize("task", cheapest_cases(), ids=lambda task: f"{task.op}/{task.case[:40]}")
def test_a_sound_backend_passes_where_defects_are_caught(task: Task) -> None:
    """Graphs are played with the reference in test_verify_programs.py."""
    sound = Sound()
    assert {r.status for r in examine(sound, sound.probe(), task)} == {"pass"}
