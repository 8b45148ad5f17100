"""A backend that lacks stateless ops: they fall back, say so, and change no bit. A cache op may not."""

from __future__ import annotations

from pathlib import Path

import pytest
from gguf_writer import File, tensor, tiny_model

from samebits import LLM
from samebits.backends.cpu import CpuBackend
from samebits.backends.discovery import Found
from samebits.backends.reference import ReferenceBackend, reference_kernels
from samebits.core.errors import Unsupported
from samebits.engine import runner
from samebits.engine.engine import Engine
from samebits.kernels.cpp.table import cpp_kernels
from samebits.kernels.record import KernelTable
from samebits.models.checkpoint import open_checkpoint
from samebits.models.parts import Limits

LIMITS = Limits(max_tokens=64, max_sequences=1, num_pages=8, max_positions=128)


class Lacking(ReferenceBackend):
    """The reference without some ops."""

    name = "lacking"

    def __init__(self, *missing: str) -> None:
        self._missing = missing

    def kernels(self) -> tuple[KernelTable, ...]:
        table = KernelTable("numpy")
        for kernel in reference_kernels():
            if kernel.op.name not in self._missing:
                table.add(kernel)
        return (table,)


class LackingCpu(CpuBackend):
    """The native backend without an op and what is fused of it: its weights are packed all the same."""

    def __init__(self, missing: str) -> None:
        super().__init__()
        self._missing = missing

    def kernels(self) -> tuple[KernelTable, ...]:
        table = KernelTable("c++")
        for kernel in cpp_kernels():
            if self._missing not in kernel.op.name:
                table.add(kernel)
        return (table,)


def load(path: Path, *missing: str) -> runner.Runner:
    backend = Lacking(*missing)
    found = Found(backend.name, "test", backend, backend.probe())
    return runner.Runner(open_checkpoint(path), found, LIMITS)


def logits(model: runner.Runner) -> bytes:
    engine = Engine(model)
    job = engine.score([5, 6, 7, 8, 9] * 5, keep_logits=True)
    engine.complete(job)
    return job.score().logits.tobytes()


@pytest.mark.parametrize(
    "missing", [("silu_and_mul", "gemm_silu_q8"), ("rope", "rope_and_append"), ("embedding", "gemm", "gemm_q8")]
)
def test_missing_stateless_ops_run_on_the_reference_with_the_same_bits(
    tiny: LLM, tiny_path: Path, missing: tuple[str, ...]
) -> None:
    model = load(tiny_path, *missing)
    assert model.fallbacks
    assert all(any(op in reason for op in missing) for reason in model.fallbacks)
    assert all("has no kernel" in reason for reason in model.fallbacks)
    assert logits(model) == logits(tiny.runner)


def test_weights_that_are_packed_for_the_device_are_so_beside_a_fallback(tiny: LLM, tiny_path: Path) -> None:
    backend = LackingCpu("silu")
    model = runner.Runner(open_checkpoint(tiny_path), Found("cpu", "test", backend, backend.probe()), LIMITS)
    assert all("silu_and_mul" in reason for reason in model.fallbacks)
    assert logits(model) == logits(load(tiny_path))


def test_a_weight_that_the_fallback_reads_is_not_packed(tmp_path: Path) -> None:
    """A tied model's table is its head too: the device multiplies by it, and the fallback takes rows of it."""
    file = tiny_model()
    tensors = [tensor(t.name, t.dims[::-1], 8) if t.name == "token_embd.weight" else t for t in file.tensors]
    path = File(file.metadata, tensors).write(tmp_path / "tied.gguf")

    backend = LackingCpu("embedding")
    model = runner.Runner(open_checkpoint(path), Found("cpu", "test", backend, backend.probe()), LIMITS)
    assert any("embedding" in reason for reason in model.fallbacks)
    assert logits(model) == logits(load(path))


def test_a_missing_fused_op_is_decomposed_not_moved(tiny: LLM, tiny_path: Path) -> None:
    model = load(tiny_path, "fused_add_rms_norm", "rope_and_append", "gemm_q8")
    assert not model.fallbacks
    assert logits(model) == logits(tiny.runner)


def test_a_missing_cache_op_is_an_error_that_names_it(tiny_path: Path) -> None:
    with pytest.raises(Unsupported, match=r"lacking cannot give portable: .*paged_attention"):
        load(tiny_path, "paged_attention")


def test_nothing_falls_back_where_everything_is_there(tiny: LLM) -> None:
    assert tiny.runner.fallbacks == ()
