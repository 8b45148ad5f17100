"""Steps that are captured as a graph, which needs a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from small_model import LIMITS, SHAPE, steps

from samebits.backends.discovery import get
from samebits.backends.gpu.executable import GpuExecutable
from samebits.backends.gpu.feeding import Feed, bucket_of
from samebits.backends.one_op import one_node
from samebits.bench.random_checkpoint import RandomCheckpoint
from samebits.core.format import FORMATS, BlockFormat, Packed
from samebits.core.shapes import Sym, TensorSpec
from samebits.core.tiers import Tier
from samebits.engine.runner import Runner
from samebits.ops import OPS

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
AHEAD_CYCLES = 200_000_000  # of the device: a tenth of a second, in which the host gets several steps ahead


def decodes(runner: Runner) -> list[bytes]:
    """Logits of one step three times: launched, captured, replayed."""
    results = []
    for _ in range(3):
        result = runner.run(steps()[1])
        result.wait()
        results.append(result.logits.tobytes())
    return results


def test_steps_are_captured_anew_after_memory_was_bound() -> None:
    runner = Runner(RandomCheckpoint(SHAPE, "f16"), get("cuda"), LIMITS, "portable")
    runner.run(steps()[0]).wait()
    before, executable = decodes(runner), runner._executable
    assert isinstance(executable, GpuExecutable)
    name, buffer = next(iter(executable._bound.items()))
    executable.bind(name, buffer)
    assert {*before} == {*decodes(runner)}
    assert len({*before}) == 1


@pytest.mark.filterwarnings("ignore:The CUDA Graph is empty")  # torch's, of a capture that ends before any launch
@pytest.mark.parametrize("is_ended", [False, True], ids=["invalidated", "raised"])
def test_steps_go_on_after_a_capture_that_failed(is_ended: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = Runner(RandomCheckpoint(SHAPE, "f16"), get("cuda"), LIMITS, "portable")
    runner.run(steps()[0]).wait()
    executable = runner._executable
    assert isinstance(executable, GpuExecutable)
    launch, failures = executable._launch, [1]

    def failing(*given: Any) -> Any:
        if torch.cuda.is_current_stream_capturing() and failures:
            failures.pop()
            if is_ended:
                raise RuntimeError("disturbed")
            torch.cuda.synchronize()  # not allowed in a capture, which is invalid from then on
        return launch(*given)

    monkeypatch.setattr(executable, "_launch", failing)
    stream = torch.cuda.current_stream()
    with pytest.warns(UserWarning, match="could not be captured"):
        before = decodes(runner)
    assert torch.cuda.current_stream() == stream
    assert executable._captured, "the third step was captured"
    assert len({*before, *decodes(runner)}) == 1
    torch.cuda.empty_cache()
    assert torch.ones(1 << 20, device="cuda").sum().item() == 1 << 20, "memory is given out as before"


def test_a_tensor_scale_copied_in_later_is_not_the_captured_one() -> None:
    nvfp4, backend = FORMATS["nvfp4"], get("cuda").backend
    assert backend is not None
    assert isinstance(nvfp4, BlockFormat)
    specs = {"table": TensorSpec((16, 64), "nvfp4"), "ids": TensorSpec((Sym("T", 8),), "i32")}
    graph = one_node(OPS["embedding"], specs, {"format": "f32"}, {"table": "cache"})
    executable, table = backend.compile(graph, Tier.PORTABLE), backend.alloc(specs["table"])
    data = nvfp4.pack(np.random.default_rng(0).normal(size=(16, 64)).astype(np.float32)).data
    executable.bind("table", table)
    results = []
    for scale in (1.0, 1.0, 1.0, 2.0, 2.0, 0.5):
        backend.copy_in(table, Packed(nvfp4, data, np.float32(scale)))
        executable.feed({"ids": np.array([3, 5], np.int32)})
        executable.run()
        results.append(np.asarray(backend.copy_out(executable.output(0))) / scale)
    assert len({x.tobytes() for x in results}) == 1


def test_a_host_that_is_steps_ahead_changes_no_array_that_was_sent() -> None:
    device = torch.device("cuda", 0)
    feed = Feed({"ids": TensorSpec((Sym("T", 256),), "i32")}, device, pads=True, bucket_for=bucket_of)
    torch.cuda._sleep(AHEAD_CYCLES)
    seen = []
    for step in range(6):
        shape, _ = feed.send({"ids": np.full(256, step, np.int32)})
        seen.append(shape.layout.tensors["ids"].clone())
    assert [x.unique().tolist() for x in seen] == [[step] for step in range(6)]
