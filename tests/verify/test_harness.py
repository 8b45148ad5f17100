"""The watched memory and the words for a place, on their own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from samebits.backends.null import NullBackend
from samebits.backends.reference import ReferenceBackend
from samebits.core.format import FORMATS, HostTensor, Packed, copy_tensor
from samebits.core.shapes import TensorSpec
from samebits.core.tiers import Tier
from samebits.kernels.record import Kernel, KernelTable
from samebits.ops import OPS, make_inputs
from samebits.verify.checks import Examination
from samebits.verify.harness import GUARD_ROWS, PATTERNS, Watched, execute, filled, raw_bytes, same_bytes
from samebits.verify.locate import axis_labels, first_difference
from samebits.verify.refusals import Comparisons

SPECS = [TensorSpec((5, 64), f) for f in ("f32", "f16", "bf16", "i32", "i8", "u32", "q8_0", "q4_0")]
CACHE_OP = OPS["append_paged_kv_cache"]


def stored(x: HostTensor) -> np.ndarray:
    return x.data if isinstance(x, Packed) else x


def watched(spec: TensorSpec, pattern: int = PATTERNS[0]) -> tuple[ReferenceBackend, Watched, np.ndarray]:
    """A backend, a tensor of zero bytes on it, and the bytes of the whole buffer, as rows."""
    backend = ReferenceBackend()
    memory = Watched(backend, "x", spec, filled(spec, 0), pattern)
    whole = stored(memory.base.tensor)  # type: ignore[attr-defined]
    return backend, memory, whole.view(np.uint8).reshape(len(whole), -1)


@pytest.mark.parametrize("spec", SPECS, ids=lambda s: s.format)
@pytest.mark.parametrize("pattern", PATTERNS)
def test_untouched_memory_shows_nothing(spec: TensorSpec, pattern: int) -> None:
    _, memory, _ = watched(spec, pattern)
    tensor, findings = memory.inspect(may_change=False)
    assert findings == []
    assert not raw_bytes(tensor).any()


@pytest.mark.parametrize("spec", SPECS, ids=lambda s: s.format)
@pytest.mark.parametrize(("row", "side"), [(0, "before"), (2, "before"), (-GUARD_ROWS, "after"), (-1, "after")])
def test_one_byte_beside_the_buffer_is_a_stray_write(spec: TensorSpec, row: int, side: str) -> None:
    _, memory, whole = watched(spec)
    whole[row, -1] ^= 1
    _, findings = memory.inspect(may_change=True)
    assert [(f.check, f.where) for f in findings] == [("guard", f"x: bytes {side} the buffer were overwritten")]


@pytest.mark.parametrize("spec", SPECS, ids=lambda s: s.format)
@pytest.mark.parametrize("row", [GUARD_ROWS, -GUARD_ROWS - 1])
def test_a_byte_of_an_input_may_change_only_in_place_ops(spec: TensorSpec, row: int) -> None:
    _, memory, whole = watched(spec)
    whole[row, 0] ^= 1
    assert memory.inspect(may_change=True)[1] == []
    assert [f.check for f in memory.inspect(may_change=False)[1]] == ["input"]


@pytest.mark.parametrize("name", ["f32", "bf16", "i32", "q4_0"])
def test_filled_holds_the_pattern_in_every_byte(name: str) -> None:
    for pattern in PATTERNS:
        assert (raw_bytes(filled(TensorSpec((2, 32), name), pattern)) == pattern).all()
    assert np.isnan(filled(TensorSpec((1,), "f32"), PATTERNS[0])).all()


def test_raw_bytes_see_what_values_hide() -> None:
    zero = np.zeros(1, np.float32)
    assert not same_bytes(zero, -zero)
    assert same_bytes(np.float32([np.nan]), np.float32([np.nan]))
    assert raw_bytes(np.float32(1)).shape == (4,)


class Partial(ReferenceBackend):
    """Writes through `write(memory)` instead of a kernel's result."""

    def __init__(self, write: Any) -> None:
        self._write = write

    def kernels(self) -> tuple[KernelTable, ...]:
        table = KernelTable("numpy")

        def run(x: np.ndarray, factor: float) -> tuple[np.ndarray]:
            return (x * np.float32(factor),)

        table.add(Kernel(OPS["scale"], "numpy", Tier.PORTABLE, run))
        return (table,)

    def compile(self, graph: Any, tier: Tier) -> Any:
        executable = super().compile(graph, tier)
        whole_run = executable.run

        def run() -> None:
            target = executable._bound[graph.outputs[0].name]
            before = target.copy()
            whole_run()
            self._write(target, before)

        executable.run = run  # type: ignore[method-assign]
        return executable


def findings_of(write: Any) -> list[tuple[str, str]]:
    inputs = {"x": np.ones((2, 4), np.float32), "factor": 2.0}
    found = Examination(Partial(write), OPS["scale"], inputs, Tier.PORTABLE, Comparisons()).findings()
    return [(f.check, f.where) for f in found]


def test_unwritten_needs_each_runs_own_pattern() -> None:
    def forget(target: np.ndarray, before: np.ndarray) -> None:
        target[1, 2:] = before[1, 2:]

    def write_a_pattern(target: np.ndarray, before: np.ndarray) -> None:
        target[1, 2:] = filled(TensorSpec((2,), "f32"), PATTERNS[1])  # written, by chance with a pattern's bytes

    assert findings_of(lambda target, before: None) == []
    assert findings_of(forget) == [("unwritten", "y: element 6 and 1 more")]
    assert [check for check, _ in findings_of(write_a_pattern)] == ["values"]


def test_the_place_named_is_the_one_that_is_wrong_not_the_first_that_differs() -> None:
    def spoil(target: np.ndarray, before: np.ndarray) -> None:
        target[0, 0] = np.nextafter(np.float32(2), np.float32(3))  # within tolerance
        target[1, 3] = 5

    (found,) = findings_of(spoil)
    assert found[0] == "values"
    assert found[1].startswith("y: row 1, element 3: 5.0 (0x40a00000) instead of 2.0 (0x40000000) (1 of 8")


def test_execute_works_in_memory_that_cannot_be_mapped() -> None:
    inputs = make_inputs(OPS["add"], OPS["add"].cases[0])
    outcome = execute(NullBackend(), OPS["add"], inputs, Tier.NONE)
    assert outcome.findings == []
    assert (raw_bytes(outcome.results[0]) == PATTERNS[0]).all()


def test_execute_leaves_the_callers_cache_alone_and_returns_the_new_one() -> None:
    inputs = make_inputs(CACHE_OP, CACHE_OP.cases[0])
    before = {name: copy_tensor(x) for name, x in inputs.items() if isinstance(x, (np.ndarray, Packed))}
    outcome = execute(ReferenceBackend(), CACHE_OP, inputs, Tier.PORTABLE)
    assert all(same_bytes(inputs[name], x) for name, x in before.items())
    assert not same_bytes(outcome.results[0], inputs["k_cache"])


# shape, layout, the element changed -> the words for it
PLACES = [
    ((4, 16, 2, 32), "NHD", (3, 15, 1, 7), "page 3, slot 15, head 1, element 7"),
    ((4, 2, 16, 32), "HND", (3, 1, 15, 7), "page 3, head 1, slot 15, element 7"),
    ((4, 2, 16, 2, 32), "NHD", (2, 1, 0, 1, 31), "page 2, K/V 1, slot 0, head 1, element 31"),
    ((4, 2, 2, 16, 32), "HND", (2, 0, 1, 0, 31), "page 2, K/V 0, head 1, slot 0, element 31"),
    ((4, 16, 96), "NHD", (1, 8, 64), "page 1, slot 8, element 64"),
]


@pytest.mark.parametrize(("shape", "layout", "at", "words"), PLACES)
@pytest.mark.parametrize("name", ["f32", "f16", "bf16"])
def test_a_place_in_a_cache(shape: tuple[int, ...], layout: str, at: tuple[int, ...], words: str, name: str) -> None:
    want = np.zeros(shape, FORMATS[name].dtype)
    got = want.copy()
    got[at] = 1
    labels = axis_labels(CACHE_OP, 0, len(shape), {"layout": layout})
    one = {"f32": "0x3f800000", "f16": "0x3c00", "bf16": "0x3f80"}[name]
    zero = f"0x{'0' * (len(one) - 2)}"
    values = f"{got[at]!s} ({one}) instead of {want[at]!s} ({zero})"
    assert first_difference(got, want, labels) == f"{words}: {values} (1 of {want.size} elements differ)"


@pytest.mark.parametrize(("shape", "layout", "at", "words"), PLACES)
def test_a_place_in_a_packed_cache(shape: tuple[int, ...], layout: str, at: tuple[int, ...], words: str) -> None:
    want = FORMATS["q8_0"].pack(np.zeros((*shape[:-1], 96), np.float32))  # type: ignore[attr-defined]
    got = copy_tensor(want)
    got.data[(*at[:-1], 34 + 5)] = 0x7F  # the sixth byte of the second block of 34
    labels = axis_labels(CACHE_OP, 0, len(shape), {"layout": layout})
    place = words.rpartition(", ")[0]
    blocks = want.data.size // 34
    expected = f"{place}, block 1, byte 39: 0x7f instead of 0x00 (1 of {blocks} blocks differ)"
    assert first_difference(got, want, labels) == expected


@pytest.mark.parametrize(
    ("op", "result", "rank", "labels"),
    [
        ("gemm", 0, 2, ["token", "output"]),
        ("rms_norm", 0, 3, ["row", "row", "element"]),
        ("paged_attention", 0, 3, ["token", "head", "element"]),
        ("paged_attention", 1, 2, ["token", "head"]),
        ("top_k", 1, 2, ["row", "rank"]),
        ("sample", 0, 1, ["row"]),
    ],
)
def test_axes_have_the_ops_own_words(op: str, result: int, rank: int, labels: list[str]) -> None:
    assert axis_labels(OPS[op], result, rank, {}) == labels


@given(st.integers(0, 23), st.integers(0, 3), st.integers(0, 7))
def test_any_single_bit_is_found_at_its_element(element: int, byte: int, bit: int) -> None:
    want = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    got = want.copy()
    got.reshape(-1).view(np.uint8)[4 * element + byte] ^= 1 << bit
    i, j, k = np.unravel_index(element, want.shape)
    found = first_difference(got, want, ["a", "b", "c"])
    assert found is not None
    assert found.startswith(f"a {i}, b {j}, c {k}: ")
    assert found.endswith("(1 of 24 elements differ)")


def test_equal_tensors_and_other_shapes() -> None:
    x = np.ones((2, 3), np.float32)
    assert first_difference(x, x.copy(), ["a", "b"]) is None
    assert first_difference(x, x[:1], ["a", "b"]) == "shape [2, 3] instead of [1, 3]"
