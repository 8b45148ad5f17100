"""The native backend's threads: changed between steps, shared, left behind by a fork, interrupted by signals, no more
than have a processor; and which failure is reported."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from samebits.backends.cpu import CpuBackend
from samebits.backends.cpu.executable import CpuExecutable
from samebits.core.errors import BadInput, Unavailable
from samebits.core.numerics.counter import Stream
from samebits.core.processors import usable_processors
from samebits.core.shapes import TensorSpec
from samebits.core.tiers import Tier
from samebits.kernels.cpp import native
from samebits.ops import OPS, call
from samebits.ops.build import OpBuilder

try:
    native()
except Unavailable as error:
    pytest.skip(str(error), allow_module_level=True)

WIDTH = 96


def softmax_of(backend: CpuBackend, x: np.ndarray) -> tuple[CpuExecutable, bytes]:
    """softmax(x) bound and ready to run, and the bytes it must give. float16: it needs scratch memory."""
    builder = OpBuilder()
    graph = builder.finish(builder.softmax(builder.input("x", TensorSpec(x.shape, "f16"))))
    executable = backend.compile(graph, Tier.PORTABLE)
    buffer = backend.alloc(TensorSpec(x.shape, "f16"))
    backend.copy_in(buffer, x)
    executable.bind("x", buffer)
    return executable, call(OPS["softmax"], x).tobytes()


def rows(count: int) -> np.ndarray:
    return Stream("team").normal((count, WIDTH)).astype(np.float16)


def result_of(backend: CpuBackend, executable: CpuExecutable) -> bytes:
    executable.run()
    return backend.copy_out(executable.output(0)).tobytes()


def test_a_step_runs_on_whatever_team_there_is() -> None:
    backend = CpuBackend()
    executable, want = softmax_of(backend, rows(7))
    for count in (2, 3, 2, 1, 4, 2):  # another team each time, whose scratch memory is not there yet
        backend.set_threads(count)
        assert result_of(backend, executable) == want


def test_callers_take_turns() -> None:
    backend = CpuBackend()
    backend.set_threads(2)
    steps = [softmax_of(backend, rows(count)) for count in (1, 40, 300)]
    with ThreadPoolExecutor(len(steps)) as pool:
        for _ in range(30):
            got = list(pool.map(lambda step: result_of(backend, step[0]), steps))
            assert got == [want for _, want in steps]


def test_a_failure_names_its_op_where_no_barrier_follows_it() -> None:
    backend, builder = CpuBackend(), OpBuilder()
    x = builder.input("x", TensorSpec((6, WIDTH), "f32"))
    codes, scales = builder.quantize_q8(x)
    graph = builder.finish(codes, builder.scale(scales, factor=2.0))
    executable = backend.compile(graph, Tier.PORTABLE)
    host = np.zeros((6, WIDTH), np.float32)
    buffer = backend.alloc(TensorSpec(host.shape, "f32"))
    executable.bind("x", buffer)
    for value, fails in ((1.0, False), (np.inf, True), (2.0, False)):
        host[5, 3] = value
        backend.copy_in(buffer, host)
        if fails:
            with pytest.raises(BadInput, match=r"^quantize_q8: x has NaN, Inf"):
                executable.run()
        else:
            executable.run()


def test_a_set_number_of_threads_is_exact_and_a_limit_is_the_most() -> None:
    backend = CpuBackend()
    executable, want = softmax_of(backend, rows(60))
    backend.set_threads(3)
    for _ in range(20):
        assert result_of(backend, executable) == want
        assert backend.team.members == 3
    backend.limit_threads(3)
    for _ in range(20):
        assert result_of(backend, executable) == want
        assert 1 <= backend.team.members <= 3


def test_the_number_of_threads_adapts_unless_it_is_set() -> None:
    backend = CpuBackend()
    assert backend.team.adapts
    assert backend.team.most == usable_processors()
    backend.set_threads(2)
    assert (backend.team.most, backend.team.adapts) == (2, False)
    backend.limit_threads(2)
    assert (backend.team.most, backend.team.adapts) == (2, True)


@pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity"), reason="this system does not let a thread choose its processors"
)
def test_threads_without_a_processor_are_not_waited_for() -> None:
    backend, before = CpuBackend(), os.sched_getaffinity(0)
    executable, want = softmax_of(backend, rows(60))
    backend.limit_threads(3)
    try:
        os.sched_setaffinity(0, {min(before)})  # the threads of a team that is started now share it
        with_fewer = 0
        for _ in range(100):
            assert result_of(backend, executable) == want
            with_fewer += backend.team.members < 3
    finally:
        os.sched_setaffinity(0, before)
    assert with_fewer > 0


def test_teams_of_several_backends_share_the_processors() -> None:
    backends = [CpuBackend() for _ in range(3)]
    steps = [softmax_of(backend, rows(200)) for backend in backends]
    for backend in backends:
        backend.limit_threads(3)

    def play(number: int) -> bool:
        executable, want = steps[number]
        return all(result_of(backends[number], executable) == want for _ in range(40))

    with ThreadPoolExecutor(len(backends)) as pool:
        assert all(pool.map(play, range(len(backends))))


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this system has no timers that send signals")
def test_signals_reach_the_caller_between_steps_and_no_step_suffers() -> None:
    backend, seen = CpuBackend(), []
    executable, want = softmax_of(backend, rows(300))
    backend.set_threads(3)

    def interrupt(*_: object) -> None:
        seen.append(1)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        while len(seen) < 5:
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.001)  # while a step runs, threads wait, or between steps
                while True:
                    executable.run()
            except KeyboardInterrupt:
                assert result_of(backend, executable) == want
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


FORKED = """
import os, sys
sys.path.insert(0, {folder!r})
from test_cpu_team import CpuBackend, result_of, rows, softmax_of
backend = CpuBackend()
backend.set_threads(3)
executable, want = softmax_of(backend, rows(9))
assert result_of(backend, executable) == want
child = os.fork()
if child == 0:
    assert result_of(backend, executable) == want
    backend.limit_threads(2)
    assert result_of(backend, executable) == want
    sys.exit()
assert os.waitpid(child, 0)[1] == 0
assert result_of(backend, executable) == want
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only here does anyone fork a process with threads")
def test_a_forked_process_starts_threads_of_its_own() -> None:
    script = FORKED.format(folder=__file__.rpartition("/")[0])
    subprocess.run([sys.executable, "-W", "ignore", "-c", script], check=True, timeout=60)


def test_a_team_needs_a_thread() -> None:
    with pytest.raises(BadInput, match="threads is 0"):
        CpuBackend().set_threads(0)
    with pytest.raises(ValueError, match="a team needs a thread"):
        native().Team(0)
