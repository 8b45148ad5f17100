"""The command line as a user runs it: a real process, its output and its exit status."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import samebits
from samebits.ops import OPS

SOURCE = Path(samebits.__file__).parents[1]


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "samebits.cli.main", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "COLUMNS": "160", **environment},
    )


def test_devices_json_lists_backends_and_the_native_part() -> None:
    facts = json.loads(run("devices", "--json").stdout)
    names = [b["name"] for b in facts["backends"]]
    assert names[:5] == ["cpu", "reference", "cuda", "rocm", "null"]
    assert all(b["available"] or b["reason"] for b in facts["backends"])
    assert facts["native"]["built"] in (True, False)


def test_support_json_covers_every_op_and_format() -> None:
    cells = json.loads(run("support", "--backend", "reference", "--json").stdout)
    assert {(c["op"], c["format"]) for c in cells} == {(op.name, f) for op in OPS for f in op.format_axis.formats}
    assert {c["tier"] for c in cells} == {"portable"}


def test_support_table_shows_tiers_and_nothing_for_null() -> None:
    text = run("support", "--op", "gemm").stdout
    assert "portable" in text
    assert "nvfp4" in text


def test_backend_can_come_from_the_environment() -> None:
    cells = json.loads(run("support", "--op", "add", "--json", SAMEBITS_BACKEND="null").stdout)
    assert {c["backend"] for c in cells} == {"null"}
    assert {c["tier"] for c in cells} == {"none"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("support", "--op", "conv9"), "error: unknown op 'conv9'; known: add"),
        (("support", "--backend", "abacus"), "error: unknown backend 'abacus'; known: cpu, cuda, null"),
    ],
)
def test_a_mistake_is_one_line_and_exit_status_2(arguments: tuple[str, ...], message: str) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith(message)
    assert done.stderr.count("\n") == 1


def test_version_names_the_numerics_version() -> None:
    assert run("--version").stdout == f"samebits {samebits.__version__}, numerics version {samebits.NUMERICS_VERSION}\n"


def test_tour_runs() -> None:
    done = run("tour")
    assert done.returncode == 0
    assert "alone and in a batch" in done.stdout


def test_it_works_from_a_plain_source_tree_without_the_native_part(tmp_path: Path) -> None:
    tree = tmp_path / "samebits"
    for file in (SOURCE / "samebits").rglob("*.py"):
        target = tree / file.relative_to(SOURCE / "samebits")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.read_bytes())
    # -S leaves out the editable install's import hook; the dependencies are put back by path
    code = "import sys; sys.path[:0] = sys.argv.pop(1).split(':'); from samebits.cli.main import main; main()"
    path = f"{tmp_path}:{sysconfig.get_path('platlib')}"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, path, "devices", "--json"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    facts = json.loads(done.stdout)
    assert facts["native"]["built"] is False
    assert "native kernels are not built" in facts["native"]["reason"]
    by_name = {b["name"]: b for b in facts["backends"]}
    assert by_name["reference"]["available"]
    assert "native kernels are not built" in by_name["cpu"]["reason"]
