"""The repository's golden set, and making and checking artifacts."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from golden_helpers import Shell, check, edit_meta, make, rewrite

from samebits.backends.discovery import get
from samebits.core.errors import BadInput
from samebits.core.tiers import Tier
from samebits.ops import OPS
from samebits.verify import golden
from samebits.verify.artifacts import as_little, find_artifacts, read_artifact
from samebits.verify.golden import SMALL_SET, make_artifact, write_artifact
from samebits.verify.harness import same_bytes
from samebits.verify.select import find_case

REPOSITORY_SET = Path(__file__).parents[2] / "golden"
REQUIRED = {"gemm", "embedding", "rms_norm", "silu_and_mul", "softmax", "top_k"}
REQUIRED |= {"paged_attention", "grouped_gemm", "rope", "append_paged_kv_cache"}


def test_the_repository_holds_the_small_set_and_it_checks_out(shell: Shell) -> None:
    wanted = {(op, case) for op, cases in SMALL_SET.items() for case in cases}
    assert find_artifacts(REPOSITORY_SET).keys() == wanted
    status, text = shell("golden", "check", REPOSITORY_SET, "--backend", "reference")
    assert status == 0, text
    assert f"{len(wanted)} pass, 0 fail, 0 unsupported, 0 broken" in text


def test_the_small_set_is_small_and_has_every_op() -> None:
    assert SMALL_SET.keys() == {op.name for op in OPS if op.reference.__module__.startswith("samebits.ops.")}
    assert sum(map(len, SMALL_SET.values())) <= 110
    assert all(len(SMALL_SET[op]) >= 3 for op in REQUIRED)
    assert sum(p.stat().st_size for p in REPOSITORY_SET.rglob("*") if p.is_file()) < 4e6


def test_paged_cases_of_the_small_set_span_layouts_and_formats() -> None:
    for op in ("paged_attention", "append_paged_kv_cache"):
        extras = [find_case(OPS[op], case).extra for case in SMALL_SET[op]]
        assert {e["kind"] for e in extras} == {"split", "unified", "mla"}
        assert {e["layout"] for e in extras} == {"NHD", "HND"}
        assert {"f16", "q8_0"} <= {e["k"] for e in extras}
        assert "q4_0" in {e["v"] for e in extras}


@pytest.mark.parametrize("op", SMALL_SET)
def test_what_is_written_is_read_back(tmp_path: Path, op: str) -> None:
    for case in SMALL_SET[op]:
        made = make_artifact(get("reference"), OPS[op], find_case(OPS[op], case), 0, Tier.PORTABLE)
        write_artifact(tmp_path, made)
        read = read_artifact(tmp_path / op / case, (op, case))
        assert (read.op, read.case, read.attrs, read.provenance) == (made.op, made.case, made.attrs, made.provenance)
        for ours, theirs in ((made.inputs, read.inputs), (made.outputs, read.outputs)):
            assert ours.keys() == theirs.keys()
            assert all(same_bytes(ours[n], theirs[n]) and ours[n].shape == theirs[n].shape for n in ours)


def test_make_then_check_by_command(tmp_path: Path, shell: Shell) -> None:
    status, text = shell("golden", "make", tmp_path / "g", "--small", "--op", "append_paged_kv_cache")
    assert status == 0
    assert f"{len(SMALL_SET['append_paged_kv_cache'])} artifacts" in text
    status, text = shell("golden", "check", tmp_path / "g", "--output", tmp_path / "r.json", "--tier", "fast")
    assert status == 0
    report = json.loads((tmp_path / "r.json").read_text())
    assert {r["status"] for r in report["results"]} == {"pass"}
    assert report["environment"]["backend"] == "cpu"
    assert sorted(p.name for p in (tmp_path / "g").iterdir()) == ["append_paged_kv_cache"]  # nothing left over
    status, text = shell("golden", "check", tmp_path / "g" / "append_paged_kv_cache" / "hnd")
    assert status == 0
    assert "1 pass" in text


def test_meta_says_where_the_bytes_came_from(tmp_path: Path) -> None:
    folder = make(tmp_path, "paged_attention", "k-q4_0-v-q4_0")
    meta = json.loads((folder / "meta.json").read_text())
    assert meta["provenance"].keys() == {"backend", "device", "tier", "seed", "generator", "python", "numpy"}
    assert meta["provenance"]["generator"] == "threefry2x32-20"
    assert meta["inputs"]["k_cache"]["format"] == "q4_0"
    assert meta["inputs"]["v_cache"]["scale"] == 1.0
    assert meta["config"]["layout"] == "NHD"


def test_a_cache_is_shipped_before_and_after(tmp_path: Path) -> None:
    artifact = read_artifact(make(tmp_path, "append_paged_kv_cache", "page-edge"))
    assert not same_bytes(artifact.inputs["k_cache"], artifact.outputs["k_cache"])


def test_an_existing_folder_needs_force(tmp_path: Path, shell: Shell) -> None:
    folder = make(tmp_path, "add", "one-row")
    rewrite(folder, "out.z.bin", np.zeros((5, 64), np.float32))
    status, text = shell("golden", "make", tmp_path, "--op", "add")
    assert status == 2
    assert text.count("\n") == 1
    assert "--force" in text
    assert check(folder).status == "fail"  # nothing was touched
    assert shell("golden", "make", tmp_path, "--op", "add", "--force")[0] == 0
    assert check(folder).status == "pass"


def test_a_failed_write_leaves_the_old_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make(tmp_path, "add", "one-row")
    artifact = read_artifact(folder)
    real = Path.rename

    def rename(self: Path, target: Path) -> Path:
        if ".new." in self.name:
            raise OSError(28, "No space left on device")
        return real(self, target)

    monkeypatch.setattr(Path, "rename", rename)
    with pytest.raises(BadInput, match="No space left"):
        write_artifact(tmp_path, artifact, force=True)
    assert check(folder).status == "pass"
    assert [p.name for p in folder.parent.iterdir()] == ["one-row"]


def test_fast_allows_the_tolerance_and_portable_does_not(tmp_path: Path) -> None:
    folder = make(tmp_path, "rms_norm", "mul-add")
    out = read_artifact(folder).outputs["y"]
    assert isinstance(out, np.ndarray)
    rewrite(folder, "out.y.bin", np.nextafter(out, np.float32(9)))
    assert check(folder).reason.startswith("bits: y: row 0, element 0:")
    assert check(folder, Tier.FAST).status == "pass"
    rewrite(folder, "out.y.bin", out + np.float32(0.5))
    assert check(folder, Tier.FAST).reason.startswith("values: y: row 0, element 0:")


def test_other_numerics_are_refused_at_portable_only(tmp_path: Path) -> None:
    folder = make(tmp_path, "add", "one-row")
    edit_meta(folder, lambda meta: meta.update(numerics_version=meta["numerics_version"] + 1))
    assert check(folder).status == "broken"
    assert check(folder, Tier.FAST).status == "pass"


def test_what_a_backend_cannot_do_is_a_result(tmp_path: Path, shell: Shell) -> None:
    folder = make(tmp_path, "add", "one-row")
    make(tmp_path, "mul", "one-row")
    status, text = shell("golden", "check", tmp_path, "--backend", "golden_helpers:OnlyMul")
    assert status == 0
    assert "1 pass, 0 fail, 1 unsupported" in text
    status, text = shell("golden", "check", tmp_path, "--backend", "null")
    assert status == 1
    assert "0 pass, 0 fail, 2 unsupported" in text
    assert "nothing was compared: null runs none of these artifacts" in text
    status, text = shell("golden", "make", tmp_path / "null", "--op", "add", "--backend", "null")
    assert status == 0
    assert "0 artifacts" in text
    assert check(folder).status == "pass"


def test_a_backend_that_raises_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make(tmp_path, "add", "one-row")

    def execute(*_: object) -> None:
        raise RuntimeError("the device\nfell off")

    monkeypatch.setattr(golden, "execute", execute)
    verdict = check(folder)
    assert (verdict.status, verdict.reason) == ("fail", "error: RuntimeError: the device fell off")


def test_files_are_little_endian_wherever_they_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.arange(4, dtype=np.float32)
    assert as_little(x) is x
    monkeypatch.setattr(sys, "byteorder", "big")
    assert as_little(x).tobytes() == x.astype(">f4").tobytes()
    assert np.array_equal(as_little(as_little(x)), x)
