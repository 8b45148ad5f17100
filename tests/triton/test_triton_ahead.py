"""Kernels compiled ahead, for a GPU that is not here: what is noted, how it is named, where it is found."""

from __future__ import annotations

import hashlib
import json
import pickle
import shutil
import subprocess
import sys
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import torch
from triton import knobs

from samebits.backends.gpu import described
from samebits.backends.gpu.ahead import Noted, sizes_of
from samebits.backends.gpu.feeding import bucket_of
from samebits.backends.support import choose_kernels, supports
from samebits.bench.random_checkpoint import RandomCheckpoint
from samebits.bench.shapes import llama
from samebits.core.errors import BadInput
from samebits.core.tiers import Tier
from samebits.kernels.ahead import is_noting
from samebits.kernels.triton.lib import shorter_compiling
from samebits.kernels.triton.lib.builds import TritonBuild, noting_launches
from samebits.kernels.triton.lib.devices import MEMORYLESS, parsed_facts
from samebits.kernels.triton.lib.disk_cache import recorded_key
from samebits.kernels.triton.rows.norm import rms_norm
from samebits.models.checkpoint import build_step
from samebits.models.parts import Limits
from samebits.passes import run_pipeline

FACTS = parsed_facts("sm_90/132")
LIMITS = Limits(max_tokens=300, max_sequences=4, num_pages=32, page_size=16, max_positions=300)


def noted_keys(num_layers: int) -> dict[str, set[str]]:
    """What each size of a small model's step launches, by key."""
    backend = described("sm_90/132")
    graph = build_step(RandomCheckpoint(llama(num_layers, 256, 512, 4, 2, 320, 512), "q4_0"), LIMITS).graph
    noted, found = Noted(graph, choose_kernels(backend, graph, Tier.PORTABLE)), {}
    for size in sizes_of(graph):
        with noting_launches(FACTS) as builds:
            noted.meet(size.dims)
        found[size.label] = set(builds)
    return found


def norm_build(num_rows: int = 3, width: int = 64) -> TritonBuild:
    with noting_launches(FACTS) as builds:
        rms_norm(torch.empty(num_rows, width, device=MEMORYLESS), torch.empty(width, device=MEMORYLESS))
    (build,) = builds.values()
    assert isinstance(build, TritonBuild)
    return build


def test_layers_that_repeat_add_no_kernel_and_sizes_share_most() -> None:
    two, four = noted_keys(2), noted_keys(4)
    assert two == four
    assert {"up to 1 tokens", "up to 256 tokens", "300 tokens"} <= set(two)
    assert len(set().union(*two.values())) < sum(map(len, two.values())) / 3


@pytest.mark.parametrize("tier", [Tier.FAST, Tier.PORTABLE])
def test_a_large_step_needs_no_other_kernel_whatever_rows_it_asks_for(tier: Tier) -> None:
    backend, limits = described("sm_90/132"), replace(LIMITS, max_tokens=2048, max_sequences=128)
    step = build_step(RandomCheckpoint(llama(2, 4096, 14336, 32, 8, 320, 512), "q4_0"), limits)
    graph = run_pipeline(step.graph, supports(backend, tier))
    noted = Noted(graph, choose_kernels(backend, graph, tier))
    large = [size.dims for size in sizes_of(graph) if size.bucket is None]
    with noting_launches(FACTS) as ahead:
        for dims in large:
            noted.meet(dims)
    for rows in (1, 3, 8, 9, 16, 17, 33, 64, 65, 100, 128):
        with noting_launches(FACTS) as builds:
            noted.meet(large[-1] | {"R": rows, "B": rows})
        assert builds.keys() <= ahead.keys(), f"{rows} rows"


def test_a_kernel_has_the_same_name_in_another_process() -> None:
    build = norm_build()
    code = "import pickle, sys; print(pickle.load(sys.stdin.buffer).key)"
    told = subprocess.run([sys.executable, "-c", code], input=pickle.dumps(build), capture_output=True, check=True)
    noted_keys(2)  # hashes many functions that it shares with others
    assert told.stdout.decode().strip() == build.key == norm_build().key


def test_the_number_of_rows_makes_no_kernel_of_its_own() -> None:
    assert len({norm_build(num_rows).key for num_rows in (1, 3, 16)}) == 1
    assert norm_build(width=1024).key != norm_build().key


def test_only_the_thread_that_notes_is_kept_from_launching() -> None:
    seen: list[bool] = []
    with noting_launches(FACTS):
        other = threading.Thread(target=lambda: seen.append(is_noting()))
        other.start()
        other.join()
        assert is_noting()
    assert seen == [False]


def test_a_cache_is_found_where_it_was_moved_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(knobs.cache, "dir", str(tmp_path / "here"))
    build = norm_build()
    assert not build.is_built()
    build.build()
    assert build.is_built()
    shutil.move(tmp_path / "here", tmp_path / "there")
    monkeypatch.setattr(knobs.cache, "dir", str(tmp_path / "there"))
    assert build.is_built()
    for cubin in (tmp_path / "there").glob("*/*.cubin"):
        cubin.unlink()
    assert not build.is_built(), "half of a kernel is none"


def test_the_pass_that_is_left_out_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels whose threads own their elements are the same machine code with all passes and without that one."""
    from samebits.kernels.triton.rows.norm_q8 import add_rms_norm_q8

    x, residual = (torch.empty(1, 576, device=MEMORYLESS) for _ in range(2))
    with noting_launches(FACTS) as builds:
        add_rms_norm_q8(x, residual, torch.empty(576, device=MEMORYLESS))
    (build,) = builds.values()
    judged: list[bool] = []
    own = shorter_compiling.has_own_elements
    code = []
    for is_spared in (True, False):
        monkeypatch.setattr(knobs.cache, "dir", str(tmp_path / str(is_spared)))
        monkeypatch.setattr(
            shorter_compiling,
            "has_own_elements",
            lambda *given, spared=is_spared: judged.append(own(*given)) or (spared and judged[-1]),
        )
        code.append(hashlib.sha256(build.compiled().asm["cubin"]).hexdigest())
    assert judged == [True, True]
    assert code[0] == code[1]


def test_the_pass_stays_where_a_thread_has_several_elements_or_tensors_have_axes() -> None:
    assert shorter_compiling.has_own_elements("tt.load %0 : tensor<64x!tt.ptr<f32>>", 64)
    assert not shorter_compiling.has_own_elements("tt.load %0 : tensor<128x!tt.ptr<f32>>", 64)
    assert not shorter_compiling.has_own_elements("tt.load %0 : tensor<4x16x!tt.ptr<f32>>", 64)
    assert not shorter_compiling.has_own_elements("tt.descriptor_load %0", 64)


def test_the_compiler_is_known_by_the_sums_of_its_files(tmp_path: Path) -> None:
    package, record = tmp_path / "triton", tmp_path / "triton-3.dist-info" / "RECORD"
    package.mkdir()
    record.parent.mkdir()
    record.write_text("triton/_C/libtriton.so,sha256=aa,1\ntriton/a.py,sha256=bb,1\n")
    key = recorded_key(package)
    record.write_text("triton/a.py,sha256=bb,1\ntriton/_C/libtriton.so,sha256=aa,1\ntriton/__pycache__/a.pyc,,\n")
    assert recorded_key(package) == key is not None
    record.write_text("triton/_C/libtriton.so,sha256=cc,1\ntriton/a.py,sha256=bb,1\n")
    assert recorded_key(package) != key
    record.write_text("triton/a.py,sha256=bb,1\n")
    assert recorded_key(package) is None


@dataclass
class Some:
    """Some buckets are ready; those that were asked for are kept in mind."""

    ready: set[int]
    asked: list[int | None] = field(default_factory=list)

    def is_ready(self, bucket: int | None) -> bool:
        self.asked.append(bucket)
        return bucket in self.ready

    def stands_in(self, bucket: int | None) -> bool:
        return bucket in self.ready

    def wait(self, bucket: int | None) -> None:
        raise NotImplementedError


def test_a_bucket_that_is_not_ready_is_stood_in_for_by_a_larger_one() -> None:
    assert bucket_of(3) == 4
    assert bucket_of(3, Some({1, 256})) == 256
    assert bucket_of(1, Some({1, 256})) == 1
    assert bucket_of(3, Some(set())) == 4
    assert bucket_of(257) is None


def test_only_the_bucket_of_a_step_is_asked_for() -> None:
    """What is asked for is compiled: a step of 3 tokens needs nothing of those between 4 and the one that stands in."""
    some = Some({256})
    bucket_of(3, some)
    assert some.asked == [4]


@pytest.mark.parametrize("text", ["sm_90", "sm_90/", "sm_90/0", "gfx942/304", "sm_x/132"])
def test_a_gpu_that_is_not_described_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="such as sm_90/132"):
        parsed_facts(text)


def test_warm_compiles_all_once_and_finds_it_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sys.path.insert(0, str(Path(__file__).parents[1] / "loaders"))
    from gguf_writer import tiny_model

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    model = tiny_model().write(tmp_path / "tiny.gguf")
    sizes = ["--max-batch-tokens", "1", "--max-sequences", "1"]
    command = [sys.executable, "-m", "samebits", "warm", str(model), "--target", "sm_90/132", "--json", *sizes]
    first, second = (
        json.loads(subprocess.run(command, capture_output=True, check=True, timeout=600).stdout) for _ in range(2)
    )
    assert first["num_compiled"] == first["num_kernels"] > 10
    assert first["num_failed"] == second["num_compiled"] == 0
    assert second["num_kernels"] == first["num_kernels"]
    assert first["kernels_per_size"]["up to 1 tokens"] > 5
    assert first["folder"] == str(tmp_path / "cache")
