"""Finding backends: plug-ins by entry point, every failure kept as a reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from samebits.backends import discovery
from samebits.core.errors import Unavailable, UnknownName

PLUGIN = """
from samebits.backends.reference import ReferenceBackend
from samebits.core.errors import Unavailable

class Good(ReferenceBackend):
    name = "good"

class Absent(ReferenceBackend):
    name = "absent"
    def probe(self):
        raise Unavailable("no such card")

class Broken(ReferenceBackend):
    name = "broken"
    def probe(self):
        raise ZeroDivisionError("oops")

class Old(ReferenceBackend):
    name = "old"
    interface_version = 0
"""
ENTRY_POINTS = """[samebits.backends]
good = probe_plugin:Good
absent = probe_plugin:Absent
broken = probe_plugin:Broken
old = probe_plugin:Old
missing = probe_plugin:Missing
reference = probe_plugin:Good
"""


@pytest.fixture
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, discovery.Found]:
    """A real installed distribution: a module and its metadata on the path."""
    (tmp_path / "probe_plugin.py").write_text(PLUGIN)
    metadata = tmp_path / "probe_plugin-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: probe-plugin\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(str(tmp_path))
    discovery.plug_ins.cache_clear()
    yield {f"{f.origin}/{f.name}": f for f in discovery.discover()}
    discovery.plug_ins.cache_clear()


def test_in_tree_backends_come_first_and_work() -> None:
    names = [f.name for f in discovery.discover() if f.origin == "built in"]
    assert names == ["cpu", "reference", "cuda", "rocm", "webgpu", "null"]
    assert discovery.get("reference").backend is not None


def test_a_plugin_is_found_by_its_entry_point(plugins: dict) -> None:
    assert plugins["probe-plugin/good"].backend is not None
    assert discovery.get("good").caps is not None


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("absent", "no such card"),
        ("broken", "failed to load: ZeroDivisionError: oops"),
        ("old", "built for interface version 0, this is 1"),
        ("missing", "failed to load: AttributeError"),
        ("reference", "the name 'reference' is taken"),
    ],
)
def test_every_failure_is_kept_as_a_reason(plugins: dict, name: str, reason: str) -> None:
    found = plugins[f"probe-plugin/{name}"]
    assert found.backend is None
    assert reason in found.reason


def test_asking_for_one_that_is_not_there(plugins: dict) -> None:
    with pytest.raises(Unavailable, match="backend absent: no such card"):
        discovery.get("absent")
    with pytest.raises(UnknownName, match="unknown backend 'cuda9'; known: "):
        discovery.get("cuda9")


@pytest.mark.usefixtures("plugins")
def test_a_name_of_another_opens_no_backend_in_the_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "_in_tree", pytest.fail)
    assert discovery.get("good").backend is not None
    with pytest.raises(UnknownName, match="good"):
        discovery.get("cuda9")
