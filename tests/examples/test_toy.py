"""The example backend: what it has is proven at the tiers it claims, and all else is refused with a reason."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections import Counter
from importlib import import_module
from importlib.metadata import EntryPoint
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from samebits.backends.discovery import GROUP, Found, get
from samebits.backends.interface import Backend
from samebits.core.errors import BadInput
from samebits.core.shapes import Sym, TensorSpec
from samebits.core.tiers import Tier
from samebits.formats import Q8_0
from samebits.graph import Graph, GraphBuilder
from samebits.graph.uses import memory_roots
from samebits.ops import OPS
from samebits.ops.build import OpBuilder
from samebits.verify.checks import verify_case
from samebits.verify.model import Task, is_drawn
from samebits.verify.proof import TIERS
from samebits.verify.select import case_of, tasks_for

PROJECT = Path(__file__).parents[2] / "examples/toy-accelerator"
TOY = "samebits_toy:ToyBackend"

# op -> the fewest quick cases that pass at every tier; any other op is refused whole
EXPECTED = {
    "add": 5,
    "mul": 5,
    "scale": 4,
    "rms_norm": 13,
    "silu_and_mul": 10,
    "softmax": 8,
    "embedding": 8,
    "gemm": 11,
    "split_heads": 4,
    "merge_heads": 4,
    "slice_columns": 4,
    "concat_columns": 4,
    "rope": 9,
    "append_paged_kv_cache": 4,
    "copy_kv_pages": 7,
    "paged_attention": 15,
    "sample": 9,
}
NUM_REFUSED = 3  # cases that are tried of an op without a kernel: all are refused alike
MOST_OPERATIONS = 1 << 18  # of a drawn case: many tiles already; `samebits verify` on the device tries larger ones
# Named cases of a model's sizes, which take numpy most of the time of all. Others of the same ops have several tiles.
LARGE_CASES = {
    ("paged_attention", "prompt-contiguous"),
    ("paged_attention", "resumed-tiles"),
    ("paged_attention", "prompt-far"),
    ("paged_attention", "whole-prompt"),
    ("paged_attention", "decode-many"),
    ("sample", "smollm2-vocabulary"),
    ("softmax", "smollm2-vocabulary"),
    ("gemm", "prefill-smollm2-135m"),
    ("rope", "llama31"),
}
PORTABLE_CASES = {
    ("gemm", "small-f32"),
    ("gemm", "small-f16"),
    ("gemm", "bf16-all"),
    ("gemm", "tail-chunk-q8_0"),
    ("gemm", "bias-q4_1"),
    ("rope", "partial-interleave"),
    ("sample", "all-filters"),
    ("softmax", "mask-all"),
    ("paged_attention", "k-f16-v-f16"),
    ("paged_attention", "cut-edges"),
    ("append_paged_kv_cache", "page-edge"),
}


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Found:
    monkeypatch.syspath_prepend(str(PROJECT / "src"))
    return get(TOY)


def tasks_of(op: str) -> list[Task]:
    """Return the tasks of a quick run that are not too large, or the first named cases of an op without a kernel."""
    if op not in EXPECTED:
        return [Task(TOY, op, case.id, TIERS) for case in OPS[op].cases[:NUM_REFUSED]]
    tasks = tasks_for(TOY, TIERS, op=op, case=None, dims={}, full=False, seed=0)
    return [task for task in tasks if not is_large(task)]


def is_large(task: Task) -> bool:
    """Return whether a case costs too much here: a drawn one by its op's space, one with a name if it is listed."""
    space, case_id = OPS[task.op].space, case_of(task).id
    if space is not None and is_drawn(case_id):
        return space.cost(space.parse(case_id)) > MOST_OPERATIONS
    return (task.op, case_id) in LARGE_CASES


@pytest.mark.parametrize("op", OPS.names())
def test_every_case_passes_or_says_why_not(toy: Found, op: str) -> None:
    cases = [(task, case_of(task)) for task in tasks_of(op)]
    results = [r for task, case in cases for r in verify_case(toy.backend, toy.caps, OPS[op], case, task)]
    assert [f"{r.case} at {r.tier}: {r.reason}" for r in results if r.status == "fail"] == []
    assert all(r.reason for r in results if r.status == "unsupported")
    passed = Counter(r.tier for r in results if r.status == "pass")
    assert all(passed[tier] >= EXPECTED[op] for tier in TIERS) if op in EXPECTED else not passed
    wanted = {case for name, case in PORTABLE_CASES if name == op}
    assert wanted <= {r.case for r in results if r.status == "pass" and r.tier == "portable"}


def test_the_native_softmax_serves_fast_only(toy: Found) -> None:
    [task] = tasks_for(TOY, TIERS, op="softmax", case="small-f32", dims={}, full=False, seed=0)
    kernels = {r.tier: r.kernel for r in verify_case(toy.backend, toy.caps, OPS["softmax"], case_of(task), task)}
    portable = "toy-tiles/softmax"
    assert kernels == {"fast": "toy-tiles/softmax_native", "invariant": portable, "portable": portable}


def test_memory_has_no_address_and_round_trips(toy: Found) -> None:
    backend = toy.backend
    assert backend is not None
    values = np.arange(70 * 3 * 45, dtype=np.float32).reshape(70, 3, 45)
    buffer = backend.alloc(TensorSpec(values.shape, "f32"))
    backend.copy_in(buffer, values)
    assert np.array_equal(backend.copy_out(buffer), values)
    assert not hasattr(buffer, "__array__")
    assert not hasattr(buffer, "data")
    packed = Q8_0.pack(values.reshape(70, 135)[:, :128])
    stored = backend.alloc(TensorSpec((70, 128), "q8_0"))
    backend.copy_in(stored, packed)
    assert np.array_equal(backend.copy_out(stored).data, packed.data)


def scaled(spec: TensorSpec) -> Graph:
    builder = GraphBuilder()
    x = builder.input("x", spec)
    return builder.finish(builder.add(OPS["scale"], {"x": x}, {"factor": 2.0}, {"...": spec.shape[:-1], "K": 3}))


def test_a_view_is_read_when_it_runs_and_never_written_blindly(toy: Found) -> None:
    backend = toy.backend
    assert backend is not None
    buffer = backend.alloc(TensorSpec((3, 4), "f32"))
    turned = backend.view(buffer, ("permute", (1, 0)))
    executable = backend.compile(scaled(TensorSpec((4, 3), "f32")), Tier.PORTABLE)
    with pytest.raises(BadInput, match="no buffer"):
        executable.run()
    executable.bind("x", turned)
    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    backend.copy_in(buffer, values)  # after bind: a lazy view shows it
    executable.run()
    assert np.array_equal(backend.copy_out(executable.output(0)), values.T * 2)
    with pytest.raises(BadInput, match="whole rows"):
        executable.bind("scale.0", turned)


def test_open_sizes_change_from_run_to_run_and_are_asked_for(toy: Found) -> None:
    backend = toy.backend
    assert backend is not None
    executable = backend.compile(scaled(TensorSpec((Sym("T", 40), 3), "f32")), Tier.PORTABLE)
    for num_rows in (2, 40, 0, 1):
        values = np.arange(num_rows * 3, dtype=np.float32).reshape(num_rows, 3)
        executable.bind("x", backend.adopt(values))
        if num_rows == 2:
            with pytest.raises(BadInput, match="prepare"):
                executable.run()
        executable.prepare({"T": num_rows})
        executable.run()
        assert executable.output(0).spec == TensorSpec((num_rows, 3), "f32")
        assert np.array_equal(backend.copy_out(executable.output(0)), values * 2)


def test_values_share_memory_only_when_they_never_meet(toy: Found) -> None:
    """A chain of any length takes two rooms in turn; an output keeps its own."""
    b = OpBuilder()
    values = [b.input("x", TensorSpec((4, 3), "f32"))]
    for _ in range(6):
        values.append(b.scale(values[-1], factor=2.0))
    total = b.add(values[-1], values[3])  # which must outlive three others
    graph = b.finish(values[-1], total)
    numbers = import_module("samebits_toy.executable").share_rooms(graph, memory_roots(graph)).numbers
    rooms = [numbers[v.name] for v in (*values[1:], total)]
    assert rooms == [0, 1, 0, 1, 2, 1, 2]


def test_metadata_registers_the_backend(toy: Found) -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    assert project["name"] == "samebits-toy"
    [(name, target)] = project["entry-points"][GROUP].items()
    loaded = EntryPoint(name, target, GROUP).load()
    assert issubclass(loaded, Backend)
    assert loaded.name == name == "toy"
    assert toy.backend is not None
    assert type(toy.backend) is loaded


def test_kernels_do_not_call_the_definitions() -> None:
    """The example would prove nothing if it ran the references; only records and helpers may come from ops."""
    allowed = {"from samebits.ops import OPS", "from samebits.ops.evaluate import spec_of"}
    for path in (PROJECT / "src/samebits_toy").glob("*.py"):
        lines = [line.strip() for line in path.read_text().splitlines() if "samebits.ops" in line]
        assert set(lines) <= allowed, path.name


def test_a_wrong_page_table_is_caught(toy: Found, monkeypatch: pytest.MonkeyPatch) -> None:
    paged = import_module("samebits_toy.paged")
    monkeypatch.setattr(paged.Pages, "length", lambda self, b, size: size * int(self.indptr[b + 1] - self.indptr[b]))
    [task] = tasks_for(TOY, ("portable",), op="paged_attention", case="page-edges", dims={}, full=False, seed=0)
    [result] = verify_case(toy.backend, toy.caps, OPS[task.op], case_of(task), task)
    assert result.status == "fail"
    assert "token 0, head 0" in result.reason


def run(*command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **variables, "COLUMNS": "100"}
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)


def test_installed_it_is_found_by_its_entry_point(tmp_path: Path) -> None:
    """Builds and installs the package into a folder of its own; nothing else is touched."""
    offline = ["--no-build-isolation"] if find_spec("hatchling") else []
    pip = (sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps", *offline)
    installed = run(*pip, "--target", str(tmp_path), str(PROJECT))
    if installed.returncode and not offline:
        pytest.skip(f"hatchling is not here and could not be fetched: {installed.stderr.strip()[-200:]}")
    assert installed.returncode == 0, installed.stderr
    samebits = (sys.executable, "-m", "samebits.cli.main")
    verified = run(*samebits, "verify", "--backend", "toy", "--op", "add", "-j", "1", PYTHONPATH=str(tmp_path))
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert re.search(r" 0 fail, \d+ unsupported; proven for add: fast, invariant, portable", verified.stdout)
    devices = run(*samebits, "devices", PYTHONPATH=str(tmp_path)).stdout
    assert "samebits-toy" in devices
