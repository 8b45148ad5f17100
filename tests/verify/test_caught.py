"""Every planted defect is caught by a case that `samebits verify` draws with its usual seed."""

from __future__ import annotations

import json
from functools import cache

import pytest
from defects import PLANTED, backend_name
from hunt import CAUGHT, played, quick_cases, tiers_of
from planted_base import EVERY_OP, Defect

from samebits.verify.examine import examine
from samebits.verify.model import Task

FOUND: dict[str, dict[str, str]] = json.loads(CAUGHT.read_text())


class Sound(Defect):
    """Everything that planted backends have but a defect."""

    ops = EVERY_OP


SOUND = Sound()


@cache
def sound_one_passes(op_name: str, case: str) -> bool:
    task = Task("sound", op_name, case, ("portable",))
    return {r.status for r in examine(SOUND, SOUND.probe(), task)} == {"pass"}


def test_each_has_been_hunted() -> None:
    assert FOUND.keys() == PLANTED.keys(), "python tests/verify/hunt.py renews caught.json"


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # values that a defect makes overflow
@pytest.mark.parametrize("name", FOUND)
def test_a_drawn_case_catches_it_and_a_sound_backend_passes_there(name: str) -> None:
    found = FOUND[name]
    if found["set"] == "quick":
        assert found["case"] in quick_cases(found["op"]), "python tests/verify/hunt.py --stale finds the case of today"
    task = Task(backend_name(PLANTED[name]), found["op"], found["case"], tiers_of(name), is_long=found["set"] == "full")
    assert played(name, found.get("after", ""), task).get("check") == found["check"]
    if "soak:" not in found["case"]:
        assert sound_one_passes(found["op"], found["case"])
