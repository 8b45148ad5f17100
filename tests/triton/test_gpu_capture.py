"""Captures that fail, with torch's capture replaced by one that fails as told: see test_cuda_capture.py for a GPU's."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace, TracebackType

import numpy as np
import pytest
import torch

from samebits.backends.discovery import get
from samebits.backends.gpu import executable as module
from samebits.backends.gpu.executable import MAX_CAPTURE_ATTEMPTS, GpuExecutable
from samebits.backends.one_op import one_node
from samebits.core.format import FORMATS, BlockFormat, HostTensor, Packed
from samebits.core.shapes import Sym, TensorSpec
from samebits.core.tiers import Tier
from samebits.ops import OPS

STREAM = object()
VALUES = np.random.default_rng(0).normal(size=(16, 64)).astype(np.float32)


class Torch:
    """torch.cuda's functions for captures; the first `failures` captures cannot be ended."""

    def __init__(self, failures: int, error: BaseException) -> None:
        self.failures, self.error = failures, error
        self.pools: list[object] = []
        self.num_captures = self.num_replays = 0
        self.stream: object = STREAM

    def patch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, value in {
            "graph_pool_handle": object,
            "CUDAGraph": lambda: SimpleNamespace(replay=self.replay, reset=lambda: None),
            "graph": self.graph,
            "current_stream": lambda _: self.stream,
            "set_stream": lambda stream: setattr(self, "stream", stream),
            "empty_cache": lambda: None,
        }.items():
            monkeypatch.setattr(torch.cuda, name, value)
        monkeypatch.setattr(module, "_BROKEN_GRAPHS", [])

    def replay(self) -> None:
        self.num_replays += 1

    def graph(self, _graph: object, pool: object, capture_error_mode: str) -> Torch:
        assert pool not in self.pools[: self.num_captures - 1], "torch refuses the pool of a capture that has not ended"
        assert capture_error_mode == "thread_local"
        self.pools.append(pool)
        return self

    def __enter__(self) -> None:
        self.num_captures += 1
        self.stream = object()

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        if self.num_captures <= self.failures:
            raise self.error
        self.stream = STREAM


class Rows:
    """A step of one node, rows of a table, on an executable that captures as on a GPU."""

    def __init__(self, cuda: Torch, monkeypatch: pytest.MonkeyPatch, fmt: str = "f32") -> None:
        specs = {"table": TensorSpec((16, 64), fmt), "ids": TensorSpec((Sym("T", 8),), "i32")}
        backend = get("cuda").backend
        assert backend is not None
        cuda.patch(monkeypatch)
        graph = one_node(
            OPS["embedding"], specs, {"format": "f32"}, {"table": "cache"}
        )  # with a cache steps are padded
        executable = backend.compile(graph, Tier.PORTABLE)
        assert isinstance(executable, GpuExecutable)
        executable._captures = True
        self.backend, self.executable, self.table = backend, executable, backend.alloc(specs["table"])
        executable.bind("table", self.table)

    def fill(self, host: HostTensor) -> None:
        self.backend.copy_in(self.table, host)

    def step(self) -> np.ndarray:
        self.executable.feed({"ids": np.array([3, 5], np.int32)})
        self.executable.run()
        return np.asarray(self.backend.copy_out(self.executable.output(0)))


def steps_of(cuda: Torch, monkeypatch: pytest.MonkeyPatch) -> tuple[Rows, Callable[[], bool]]:
    """A step, and a function that takes it and says whether its result is right."""
    rows, table = Rows(cuda, monkeypatch), VALUES
    rows.fill(table)
    return rows, lambda: rows.step().tobytes() == table[[3, 5]].tobytes()


def test_a_capture_that_fails_once_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = Torch(1, RuntimeError("capture was invalidated\nand more"))
    rows, is_right = steps_of(cuda, monkeypatch)
    assert is_right()
    with pytest.warns(UserWarning, match="a step of up to 2 tokens could not be captured: capture was invalidated$"):
        assert is_right()
    assert cuda.stream is STREAM
    assert (cuda.num_captures, cuda.num_replays) == (1, 0)
    assert is_right()
    assert (cuda.num_captures, cuda.num_replays) == (2, 1)
    assert len(set(cuda.pools)) == 2
    assert rows.executable._captured.keys() == {2}


@pytest.mark.filterwarnings("ignore:a step of up to")
def test_captures_that_always_fail_are_given_up_and_steps_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = Torch(99, RuntimeError(""))
    _, is_right = steps_of(cuda, monkeypatch)
    assert all(is_right() for _ in range(MAX_CAPTURE_ATTEMPTS + 3))
    assert (cuda.num_captures, cuda.num_replays) == (MAX_CAPTURE_ATTEMPTS, 0)


def test_memory_that_runs_out_ends_all_captures(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = Torch(99, torch.OutOfMemoryError("CUDA out of memory"))
    _, is_right = steps_of(cuda, monkeypatch)
    with pytest.warns(UserWarning, match="out of memory: a step of up to 2 tokens was not captured") as told:
        assert all(is_right() for _ in range(4))
    assert len(told) == 1
    assert cuda.num_captures == 1


def test_an_interrupted_capture_leaves_the_stream_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = Torch(1, KeyboardInterrupt())
    _, is_right = steps_of(cuda, monkeypatch)
    assert is_right()
    with pytest.raises(KeyboardInterrupt):
        is_right()
    assert cuda.stream is STREAM
    assert is_right()
    assert (cuda.num_captures, cuda.num_replays) == (2, 1)


def test_a_tensor_scale_copied_in_later_is_not_the_captured_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scale of an NVFP4 tensor is a number of the launch; here of a table that is bound once and then changed."""
    cuda, nvfp4 = Torch(0, RuntimeError()), FORMATS["nvfp4"]
    assert isinstance(nvfp4, BlockFormat)
    rows, data = Rows(cuda, monkeypatch, "nvfp4"), nvfp4.pack(VALUES).data
    results = []
    for scale in (1.0, 1.0, 1.0, 2.0, 2.0, 0.5):
        rows.fill(Packed(nvfp4, data, np.float32(scale)))
        results.append(rows.step() / scale)
    assert cuda.num_replays == 5
    assert len({x.tobytes() for x in results}) == 1
