"""The command line as a user runs it: a real process, its output and its exit status."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

import samebits
from samebits.backends.discovery import Found
from samebits.cli.support import print_matrix
from samebits.ops import OPS

sys.path.insert(0, str(Path(__file__).parents[1] / "loaders"))
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
    assert names[:6] == ["cpu", "reference", "cuda", "rocm", "webgpu", "null"]
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


@pytest.fixture(scope="module")
def plain_tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python sources alone: nothing is installed, nothing compiled."""
    folder = tmp_path_factory.mktemp("plain")
    for file in (SOURCE / "samebits").rglob("*.py"):
        target = folder / file.relative_to(SOURCE)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.read_bytes())
    return folder


def run_plain(tree: Path, *arguments: str) -> str:
    """Return what `python -m samebits` prints in that tree."""
    return run_in_plain_tree(tree, *arguments).stdout


def run_in_plain_tree(tree: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `python -m samebits` in that tree, which must succeed."""
    # -S leaves out the editable install's import hook; the dependencies are put back by path
    code = (
        "import runpy, sys; sys.path[:0] = sys.argv.pop(1).split(':'); runpy.run_module('samebits', None, '__main__')"
    )
    path = f"{tree}:{sysconfig.get_path('platlib')}"
    command = [sys.executable, "-I", "-S", "-c", code, path, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done


def test_a_plain_source_tree_says_that_the_native_part_is_not_built(plain_tree: Path) -> None:
    facts = json.loads(run_plain(plain_tree, "devices", "--json"))
    assert facts["native"]["built"] is False
    assert "native kernels are not built" in facts["native"]["reason"]
    by_name = {b["name"]: b for b in facts["backends"]}
    assert by_name["reference"]["available"]
    assert "native kernels are not built" in by_name["cpu"]["reason"]
    assert "native kernels are not built" in " ".join(run_plain(plain_tree, "devices").split())


def test_a_plain_source_tree_runs_on_the_reference(plain_tree: Path, tmp_path: Path) -> None:
    assert "cpu: unavailable: native kernels are not built" in run_plain(plain_tree, "support", "--op", "gemm")
    assert "0 fail" in run_plain(plain_tree, "verify", "--backend", "reference", "--op", "add", "--case", "small-f32")
    from gguf_writer import tiny_model

    model = str(tiny_model().write(tmp_path / "tiny.gguf"))
    options = ("--model", model, "--max-tokens", "3", "--temperature", "0")
    chosen = run_in_plain_tree(plain_tree, "generate", "hi", *options, "--backend", "reference")
    by_default = run_in_plain_tree(plain_tree, "generate", "hi", *options)
    assert chosen.stdout == by_default.stdout == run("generate", "hi", *options).stdout
    assert "SLOW" not in chosen.stderr  # asked for by name
    (warning,) = [line for line in by_default.stderr.splitlines() if "SLOW" in line]
    assert warning.startswith("warning: this installation is SLOW: it runs on backend reference: native kernels")
    assert "pip install --force-reinstall" in warning


def test_a_reason_is_shown_as_it_is_written() -> None:
    missing = Found("abacus", "built in", None, None, "beads are not installed; `pip install samebits[beads]`")
    text = StringIO()
    print_matrix(Console(file=text, width=200), [OPS["add"]], [missing])
    assert "samebits[beads]" in text.getvalue()
