"""What the machine cannot do, to real processes: one line and a status, never a traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from samebits.cli.main import fault_line
from samebits.core.errors import BadInput

sys.path.insert(0, str(Path(__file__).parents[1] / "loaders"))
SAMEBITS = [sys.executable, "-m", "samebits.cli.main"]
pytestmark = pytest.mark.skipif(not Path("/dev/full").exists(), reason="these limits and devices are Linux's")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    from gguf_writer import tiny_model

    return str(tiny_model().write(tmp_path_factory.mktemp("faults") / "tiny.gguf"))


def run_in_shell(line: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A shell line in which "$@" stands for the command and its arguments."""
    env = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "COLUMNS": "200"}
    call = ["bash", "-c", line, "bash", *SAMEBITS, *arguments]
    return subprocess.run(call, capture_output=True, text=True, timeout=120, env=env, check=False)


FAULTS = {
    "a pool beyond memory": (
        'exec "$@"',
        ["generate", "hi", "--num-pages", "2000000000"],
        "num_pages 2,000,000,000 needs",
    ),
    "no room for a thread": (
        'ulimit -s 8388608; ulimit -v 6000000; exec "$@"',
        ["chat", "hi", "--threads", "1"],
        "can't start new thread; needs room for more threads",
    ),
    "a full disk behind the output": ('"$@" > /dev/full', ["generate", "hi"], "No space left on device"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_the_machine_is_one_line(model: str, name: str) -> None:
    line, arguments, expected = FAULTS[name]
    done = run_in_shell(line, *arguments, "--model", model, "--max-tokens", "3")
    assert done.returncode == 2, done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("error: ")
    assert expected in last
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") <= 2  # it may have said before what it runs on


def test_an_interrupt_is_no_traceback(model: str) -> None:
    call = [*SAMEBITS, "generate", "hi", "--model", model, "--max-tokens", "250", "--backend", "reference"]
    heard = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # a suite in the background ignores it
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    process = subprocess.Popen(call, **pipes, text=True, preexec_fn=heard)
    assert process.stderr is not None
    assert "on reference" in process.stderr.readline()  # it is loaded, and answers
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode in (1, 130)
    assert "Traceback" not in said


def test_faults_of_ours_are_shown_whole() -> None:
    assert fault_line(ZeroDivisionError("x")) is None
    assert fault_line(RuntimeError("x")) is None
    assert fault_line(ImportError("no module named x")) is None


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (BadInput("a", "b", 1, "2"), "a: b is 1, but must be 2"),
        (MemoryError(), "out of memory: there is no more; needs a smaller model, --context-len or --num-pages"),
        (RecursionError("maximum\ndepth"), "nested too deeply: maximum depth; needs plainer input"),
        (PermissionError(13, "Permission denied", "/x"), "/x: Permission denied"),
        (OSError("odd"), "odd"),
        (RuntimeError("can't start new thread"), "can't start new thread; needs room for more threads"),
        (ImportError("x.so: failed to map segment from shared object"), "out of memory: x.so"),
    ],
)
def test_lines(error: BaseException, expected: str) -> None:
    assert str(fault_line(error)).startswith(expected)
