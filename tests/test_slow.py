"""The list of slow tests names tests that exist, and the times of a report are added up by function."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from slow import FOLDERS, seconds_by_function, slow_names

HERE = Path(__file__).parent
REPORT = """<testsuites><testsuite>
<testcase classname="tests.ops.test_rules" name="test_a[x-1]" time="1.5"/>
<testcase classname="tests.ops.test_rules" name="test_a[y]" time="0.25"/>
<testcase classname="tests.test_docs" name="test_b" time="0.5"/>
<testcase classname="tests.scheduler.test_machine.TestMachine" name="runTest" time="2"/>
</testsuite></testsuites>"""


def functions(path: Path) -> set[str]:
    """Test functions of a file; of a class those it has, and `runTest`, which a state machine's has from its base."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            found |= {f"{node.name}::{inner.name}" for inner in node.body if isinstance(inner, ast.FunctionDef)}
        elif isinstance(node, ast.Assign):
            found |= {f"{ast.unparse(target)}::runTest" for target in node.targets}
    return found


def test_slow_tests_exist() -> None:
    named = [name.partition("::") for name in sorted(slow_names())]
    assert named
    gone = [f"{path}::{inner}" for path, _, inner in named if inner not in functions(HERE / path)]
    assert gone == [], "take them out of tests/slow.txt, or renew it: python tests/slow.py build/tests.xml --write"
    assert all((HERE / folder).is_dir() for folder in FOLDERS)


def test_files_that_quick_leaves_out_hold_slow_tests_only() -> None:
    (line,) = re.findall(r"^SLOW_FILES := (.*)$", (HERE.parent / "Makefile").read_text(), re.MULTILINE)
    for name in set(line.split()) - FOLDERS:
        tests = {inner for inner in functions(HERE / name) if inner.startswith("test_")}
        assert {f"{name}::{inner}" for inner in tests} <= slow_names(), name


def test_times_are_added_up_by_function(tmp_path: Path) -> None:
    report = tmp_path / "tests.xml"
    report.write_text(REPORT)
    assert seconds_by_function(report) == {
        "ops/test_rules.py::test_a": 1.75,
        "test_docs.py::test_b": 0.5,
        "scheduler/test_machine.py::TestMachine::runTest": 2.0,
    }
