"""The GPU backend without a GPU: memory, feeding and faults, with kernels in Triton's interpreter."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from samebits.backends.discovery import get
from samebits.backends.gpu.feeding import BUCKETS, Feed, bucket_of
from samebits.backends.gpu.memory import explained
from samebits.backends.interface import Backend
from samebits.core.errors import BadInput, OutOfMemory
from samebits.core.format import FORMATS, BlockFormat, Packed
from samebits.core.shapes import Sym, TensorSpec
from samebits.core.tiers import Tier
from samebits.kernels.triton.lib.faults import fault, fault_word
from samebits.ops.build import OpBuilder
from samebits.ops.cases import in_format
from samebits.ops.evaluate import spec_of

HOST = torch.device("cpu")


@pytest.fixture(scope="module")
def backend() -> Backend:
    found = get("cuda")
    assert found.backend is not None
    return found.backend


@pytest.mark.parametrize("name", [f.name for f in FORMATS if f.name not in ("bool", "u32")])
def test_what_goes_in_comes_out(backend: Backend, name: str) -> None:
    fmt = FORMATS[name]
    values = np.random.default_rng(0).standard_normal((5, 512)).astype(np.float32)
    host = fmt.pack(values) if isinstance(fmt, BlockFormat) else in_format(values * 10, name)
    buffer = backend.alloc(spec_of(host))
    backend.copy_in(buffer, host)
    out = backend.copy_out(buffer)
    some = backend.copy_out(backend.view(buffer, ("slice", 0, 1, 4)))
    if isinstance(host, Packed):
        assert isinstance(out, Packed)
        assert isinstance(some, Packed)
        assert (out.data.tobytes(), out.scale) == (host.data.tobytes(), host.scale)
        assert (some.data.tobytes(), some.scale) == (host.data[1:4].tobytes(), host.scale)
    else:
        assert out.tobytes() == host.tobytes()  # type: ignore[union-attr]
        assert some.tobytes() == host[1:4].tobytes()  # type: ignore[union-attr]


def test_memory_that_is_smaller_than_a_run_is_refused_until_it_is_fed(backend: Backend) -> None:
    b = OpBuilder()
    x = b.input("x", TensorSpec((Sym("T", 64), 8), "f32"))
    executable = backend.compile(b.finish(b.scale(x, factor=2.0)), Tier.PORTABLE)
    executable.bind("x", backend.adopt(np.ones((4, 8), np.float32)))
    executable.prepare({"T": 64})
    with pytest.raises(BadInput, match=r"gpu: x is memory of 4 rows \(f32\[4, 8\]\), but must be 64 rows, for T = 64"):
        executable.run()
    executable.prepare({"T": 4})
    executable.run()
    assert executable.feed({"x": np.ones((7, 8), np.float32)})
    executable.run()
    assert backend.copy_out(executable.output(0)).tolist() == [[2.0] * 8] * 7  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["f32", "f16", "bf16"])
def test_a_tensor_without_axes_goes_in_and_comes_out(backend: Backend, name: str) -> None:
    host = in_format(np.array(1.5, np.float32), name)
    buffer = backend.alloc(spec_of(host))
    backend.copy_in(buffer, host)
    out = backend.copy_out(buffer)
    assert (out.shape, out.tobytes()) == ((), host.tobytes())  # type: ignore[union-attr]


def test_buckets_hold_their_steps() -> None:
    assert [bucket_of(n) for n in (1, 3, 9, 65, 256, 257)] == [1, 4, 16, 96, 256, None]
    assert all(bucket_of(n) >= n for n in range(1, BUCKETS[-1] + 1))  # type: ignore[operator]


def test_padding_names_nothing_alive() -> None:
    steps = {
        "positions": TensorSpec((Sym("T", 64),), "i32"),
        "qo_indptr": TensorSpec((Sym("B", 64, plus=1),), "i32"),
        "kv_last_page_len": TensorSpec((Sym("B", 64),), "i32"),
        "kv_indices": TensorSpec((Sym("NI", 100),), "i32"),
    }
    feed = Feed(steps, HOST, pads=True, bucket_for=bucket_of)
    arrays = {"positions": [5, 6, 0], "qo_indptr": [0, 2, 3], "kv_last_page_len": [7, 1], "kv_indices": [3, 1, 2]}
    fed = {name: np.array(values, np.int32) for name, values in arrays.items()}
    plan, dims = feed.send(fed)
    assert dims == {"T": 3, "B": 2, "NI": 3}
    assert plan.bucket == 4
    tensors = plan.layout.tensors
    assert tensors["positions"].tolist() == [5, 6, 0, -1]
    assert tensors["qo_indptr"].tolist() == [0, 2, 3, 3, 3]
    assert tensors["kv_last_page_len"].tolist() == [7, 1, 0, 0]
    assert tensors["kv_indices"][:3].tolist() == [3, 1, 2]
    with pytest.raises(BadInput, match="65 entries"):
        feed.send({**fed, "positions": np.zeros(65, np.int32)})
    fed["kv_indices"] = np.arange(7, dtype=np.int32)  # the same plan, a longer table
    again, dims = feed.send(fed)
    assert again is plan
    assert dims["NI"] == 7
    assert tensors["kv_indices"][:7].tolist() == list(range(7))
    assert tensors["positions"].tolist() == [5, 6, 0, -1]


class Copied:
    """An event after a copy that ends only when it is waited for: until then what is copied must stay."""

    def __init__(self, staged: np.ndarray) -> None:
        self._staged, self._sent, self.num_waits = staged, None, 0

    def record(self) -> None:
        self._sent = self._staged.copy()

    def synchronize(self) -> None:
        if self._sent is not None:
            assert self._sent.tobytes() == self._staged.tobytes(), "filled before its copy had ended"
            self.num_waits += 1


def test_a_staging_buffer_is_not_filled_before_its_last_copy_has_ended() -> None:
    feed = Feed({"ids": TensorSpec((Sym("T", 9),), "i32")}, HOST, pads=True, bucket_for=bucket_of)
    events = [Copied(staged) for staged in feed._host]
    feed._copied = events  # type: ignore[assignment]
    for step in range(6):
        feed.send({"ids": np.full(3, step, np.int32)})
    assert [event.num_waits for event in events] == [2, 2]


def test_a_step_too_large_for_a_bucket_is_not_padded() -> None:
    specs = {"ids": TensorSpec((Sym("T", 999),), "i32"), "kv_indices": TensorSpec((Sym("NI", 9),), "i32")}
    feed = Feed(specs, HOST, pads=True, bucket_for=bucket_of)
    for count in (2, 5):
        plan, _ = feed.send({"ids": np.arange(300, dtype=np.int32), "kv_indices": np.arange(count, dtype=np.int32)})
        assert plan.bucket is None
        assert plan.layout.tensors["ids"].tolist() == list(range(300))
        assert plan.layout.tensors["kv_indices"].tolist() == list(range(count))


def test_a_fault_is_raised_once_with_its_reason(backend: Backend) -> None:
    number = fault("norm", "x", "a NaN", "numbers")
    assert fault("norm", "x", "a NaN", "numbers") == number
    fault_word(HOST)[0] = number
    fault_word(HOST, of_sampling=True)[0] = fault("sample", "logits", "a NaN", "numbers")
    with pytest.raises(BadInput, match="norm: x is a NaN, but must be numbers"):  # sampling only follows from it
        backend.sync()
    backend.sync()


def test_running_out_of_memory_says_what_was_asked_for() -> None:
    with pytest.raises(OutOfMemory, match=r"f32\[9\] of 36 MiB does not fit"), explained(HOST, "f32[9]", 36 << 20):
        raise torch.OutOfMemoryError("CUDA out of memory")


def test_a_buffer_of_another_backend_is_refused(backend: Backend) -> None:
    foreign = get("reference").backend
    assert foreign is not None
    with pytest.raises(BadInput, match="a buffer of this backend"):
        backend.copy_out(foreign.alloc(TensorSpec((3,), "f32")))
