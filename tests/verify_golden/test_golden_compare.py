"""`samebits compare`: bits first, then the rule of the op."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from golden_helpers import Shell, edit_meta, make, rewrite

from samebits.core.format import Packed
from samebits.ops import bind
from samebits.verify.artifacts import read_artifact
from samebits.verify.bounds.caches import before_rounding
from samebits.verify.compare import Comparison, compare_trees

Change = Callable[[np.ndarray], np.ndarray]


@pytest.fixture
def pair(tmp_path: Path) -> Callable[[str, str], tuple[Path, Path]]:
    """Two equal folders of a case, in trees a and b."""

    def build(op: str, case: str) -> tuple[Path, Path]:
        a = make(tmp_path / "a", op, case)
        shutil.copytree(tmp_path / "a", tmp_path / "b", dirs_exist_ok=True)
        return a, tmp_path / "b" / op / case

    return build


Pair = Callable[[str, str], tuple[Path, Path]]


def array(folder: Path, name: str) -> np.ndarray:
    """A copy of a plain tensor, by file name."""
    artifact = read_artifact(folder)
    side, tensor, _ = name.split(".")
    x = (artifact.inputs if side == "in" else artifact.outputs)[tensor]
    assert isinstance(x, np.ndarray)
    return x.copy()


def one(a: Path, b: Path) -> Comparison:
    (found,) = compare_trees(a.parents[1], b.parents[1])
    return found


def changed(folder: Path, name: str, index: tuple[int, ...], value: float) -> None:
    x = array(folder, name)
    x[index] = value
    rewrite(folder, name, x)


@pytest.mark.parametrize(
    "op_case", ["gemm/odd-k-f16", "convert_kv_layout/split-q8_0", "sample/penalties", "merge_state/both-empty"]
)
def test_equal_bits_are_the_same(pair: Pair, op_case: str) -> None:
    op, case = op_case.split("/")
    assert one(*pair(op, case)).status == "same"


def test_a_small_difference_is_close_and_measured(pair: Pair) -> None:
    a, b = pair("rms_norm", "mul-add")
    y = array(a, "out.y.bin")
    y[2, 7] = np.nextafter(np.nextafter(y[2, 7], np.float32(99)), np.float32(99))
    rewrite(a, "out.y.bin", y)
    found = one(a, b)
    assert found.status == "close"
    assert found.reason.startswith("y: row 2, element 7:")
    assert found.distances[0].max_ulp == 2
    assert 0 < found.distances[0].max_abs < 1e-5
    assert found.distances[0].nmse is not None
    assert 0 < found.distances[0].nmse < 1e-12


@pytest.mark.parametrize("value", [1e6, np.nan, np.inf])
def test_beyond_the_tolerance_is_different_and_located(pair: Pair, value: float) -> None:
    a, b = pair("rms_norm", "mul-add")
    y = array(a, "out.y.bin")
    y[0, 0] = np.nextafter(y[0, 0], np.float32(99))  # within tolerance, so not the one to name
    y[3, 5] = value
    rewrite(a, "out.y.bin", y)
    found = one(a, b)
    assert found.status == "different"
    assert found.reason.startswith("y: row 3, element 5:")


def test_zeros_of_either_sign_are_no_ulp_apart(pair: Pair) -> None:
    a, b = pair("add", "one-row")
    changed(a, "out.z.bin", (0, 0), -0.0)
    changed(b, "out.z.bin", (0, 0), 0.0)
    found = one(a, b)
    assert (found.status, found.distances[0].max_ulp) == ("close", 0)


@pytest.mark.parametrize("op_case", ["argmax/ties/out.indices.bin", "sample/penalties/out.tokens.bin"])
def test_tokens_must_be_equal(pair: Pair, op_case: str) -> None:
    op, case, name = op_case.split("/")
    a, b = pair(op, case)
    rewrite(a, name, array(a, name) ^ 1)
    assert one(a, b).status == "different"


def tied_top_k(pair: Pair) -> tuple[Path, Path]:
    """x of row 0: 9, 7, 7, 7, 5, 0, ...; k = 5 picks 0 1 2 3 4."""
    a, b = pair("top_k", "small-f32")
    for folder in (a, b):
        x, values, indices = (array(folder, n) for n in ("in.x.bin", "out.values.bin", "out.indices.bin"))
        x[0] = 0
        x[0, :5] = (9, 7, 7, 7, 5)
        x[0, 20] = 5
        values[0], indices[0] = (9, 7, 7, 7, 5), (0, 1, 2, 3, 4)
        for name, tensor in (("in.x.bin", x), ("out.values.bin", values), ("out.indices.bin", indices)):
            rewrite(folder, name, tensor)
    return a, b


@pytest.mark.parametrize(
    ("indices", "values", "status"),
    [
        ((0, 1, 2, 3, 4), (9, 7, 7, 7, 5), "same"),
        ((0, 3, 1, 2, 4), (9, 7, 7, 7, 5), "close"),  # order among equals
        ((0, 1, 2, 3, 20), (9, 7, 7, 7, 5), "close"),  # another of the equal ones
        ((4, 3, 2, 1, 0), (5, 7, 7, 7, 9), "different"),  # the set, smallest first
        ((1, 0, 2, 3, 4), (7, 9, 7, 7, 5), "different"),  # the set, with the two largest exchanged
        ((0, 1, 2, 3, 5), (9, 7, 7, 7, 5), "different"),  # 5 does not hold 5
        ((0, 1, 1, 3, 4), (9, 7, 7, 7, 5), "different"),  # twice the same
        ((0, 1, 2, 3, 64), (9, 7, 7, 7, 5), "different"),  # outside the row
        ((0, 1, 2, 3, -1), (9, 7, 7, 7, 5), "different"),
        ((0, 1, 2, 3, 5), (9, 7, 7, 7, 0), "different"),  # honest, but not the largest
    ],
)
def test_top_k_reorders_only_equals(
    pair: Pair, indices: tuple[int, ...], values: tuple[float, ...], status: str
) -> None:
    a, b = tied_top_k(pair)
    for name, row in (("out.indices.bin", indices), ("out.values.bin", values)):
        tensor = array(a, name)
        tensor[0] = row
        rewrite(a, name, tensor)
    found = one(a, b)
    assert found.status == status, found
    assert status != "different" or "row 0, rank" in found.reason


def test_top_k_mask_compares_finite_positions_first(pair: Pair) -> None:
    a, b = pair("top_k_mask_logits", "small-f32")
    y = array(a, "out.y.bin")
    kept = int(np.argmax(np.isfinite(y[1])))
    changed(a, "out.y.bin", (1, kept), -np.inf)
    found = one(a, b)
    assert found.status == "different"
    assert found.reason.startswith(f"finite positions: row 1, element {kept}: False")
    changed(a, "out.y.bin", (1, kept), float(y[1, kept]) + 1)
    assert one(a, b).reason.startswith(f"y: row 1, element {kept}:")
    y[~np.isfinite(y)] = np.nan  # as far from finite, but -Inf is what the op gives
    rewrite(a, "out.y.bin", y)
    assert one(a, b).status == "different"


def poisoned(folder: Path, case: str, of: str, written: bool) -> None:
    """Another NaN in a cell; `written` leaves the cell before the call alone."""
    for name in (f"out.{of}.bin",) if written else (f"in.{of}.bin", f"out.{of}.bin"):
        x = array(folder, name)
        cell = tuple(np.argwhere(np.isnan(array(folder, f"out.{of}.bin")).all(axis=-1))[0])
        x[cell] = np.array(0x7E01, np.uint16).view(np.float16)
        rewrite(folder, name, x)


@pytest.mark.parametrize("case", ["hnd", "unified", "mla", "page-edge"])
def test_poison_of_unwritten_cells_is_ignored(pair: Pair, case: str) -> None:
    a, b = pair("append_paged_kv_cache", case)
    poisoned(a, case, "k_cache", written=False)
    found = one(a, b)
    assert (found.status, found.reason) == ("close", "NaN poison of cells nobody wrote")


def test_nan_that_was_written_is_located(pair: Pair) -> None:
    a, b = pair("append_paged_kv_cache", "page-edge")
    x = array(a, "out.k_cache.bin")
    page, slot = np.argwhere(~np.isnan(x).any(axis=(2, 3)))[0]
    x[page, slot] = np.nan
    rewrite(a, "out.k_cache.bin", x)
    found = one(a, b)
    assert found.status == "different"
    assert found.reason.startswith(f"k_cache: page {page}, slot {slot}, head 0, element 0: nan")


def test_a_quantized_code_may_be_one_step_away_beyond_a_tie(pair: Pair) -> None:
    a, b = pair("append_paged_kv_cache", "unified-hnd-q8_0")
    artifact = read_artifact(b)
    exact = before_rounding(bind(artifact.op, **artifact.inputs, **artifact.attrs))["k_cache"]
    want = artifact.outputs["k_cache"]
    assert isinstance(want, Packed)
    off = (exact - want.unpack()).reshape(-1, 32) / want.codes().d.reshape(-1, 1)  # in steps
    row, column = np.unravel_index(np.nanargmax(np.abs(off)), off.shape)
    step = int(np.sign(off[row, column]))
    for moved, status in ((step, "close"), (2 * step, "different"), (-step, "different")):
        data = np.frombuffer((b / "out.k_cache.bin").read_bytes(), np.uint8).copy().reshape(-1, 34)
        data[row, 2 + column :].view(np.int8)[0] += moved
        rewrite(a, "out.k_cache.bin", data)
        assert one(a, b).status == status


def test_other_inputs_or_config_are_another_call(pair: Pair) -> None:
    a, b = pair("top_k", "small-f32")
    x = array(a, "in.x.bin")
    x[2, 3] += 1
    rewrite(a, "in.x.bin", x)
    assert one(a, b).reason.startswith("input x: axis-0 2, axis-1 3:")
    a, b = pair("scale", "small-f32")
    edit_meta(a, lambda meta: meta["config"].update(factor=0.25))
    (found,) = compare_trees(a, b)
    assert found.reason == "config: factor: 0.25 instead of 0.125"


def test_trees_must_hold_the_same_cases(tmp_path: Path, shell: Shell) -> None:
    make(tmp_path / "a", "add", "one-row")
    make(tmp_path / "b", "add", "one-row")
    make(tmp_path / "b", "mul", "one-row")
    status, text = shell("compare", tmp_path / "a", tmp_path / "b", "--output", tmp_path / "r.json")
    assert status == 1
    assert "missing mul/one-row: only in B" in text
    assert [r["status"] for r in json.loads((tmp_path / "r.json").read_text())["results"]] == ["same", "missing"]
    status, text = shell("compare", tmp_path / "a", tmp_path / "b" / "add" / "one-row")
    assert (status, "two of the same kind" in text) == (2, True)


def test_single_folders_and_their_status(tmp_path: Path, shell: Shell) -> None:
    a, b = make(tmp_path / "a", "add", "small-f32"), make(tmp_path / "b", "add", "small-f32")
    assert shell("compare", a, b)[0] == 0
    changed(a, "out.z.bin", (1, 2), 77.0)
    status, text = shell("compare", a, b)
    assert status == 1
    assert "different add/small-f32: z: row 1, element 2: 77.0 (0x429a0000) instead of" in text
    assert "(max abs" in text
    status, text = shell("compare", a, make(tmp_path / "c", "mul", "small-f32"))
    assert (status, "op: add instead of mul" in text) == (1, True)
