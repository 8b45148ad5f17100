"""Where two tensors differ, said so that a porter can look there: page, slot, head, element, values and bits."""

from __future__ import annotations

from typing import Any

import numpy as np

from samebits.core.format import HostTensor, Packed
from samebits.ops import Op
from samebits.ops.record import Result
from samebits.verify.harness import raw_bytes

AXIS_NAMES = {"T": "token", "Hq": "head", "H": "head", "Hkv": "head", "Dv": "element", "D": "element", "K": "element"}
AXIS_NAMES |= {"N": "output", "B": "row", "V": "token id", "NB": "block", "k": "rank", "heads": "head"}


def axis_labels(op: Op, result: int, rank: int, attrs: dict[str, Any]) -> list[str]:
    """A word for every axis of a result: what the op's dimensions mean."""
    record = op.results[result]
    if record.format.removeprefix("=") in op.caches:
        inner = ["slot", "head"] if attrs.get("layout", attrs.get("target", "NHD")) == "NHD" else ["head", "slot"]
        return {
            3: ["page", "slot", "element"],
            4: ["page", *inner, "element"],
            5: ["page", "K/V", *inner, "element"],
        }.get(rank, ["axis"] * rank)
    texts = record.dims.split()
    if texts and texts[0] == "...":
        texts = ["row"] * (rank - len(texts) + 1) + texts[1:]
    labels = [AXIS_NAMES.get(t.split("*")[-1], t) for t in texts][:rank] or ["axis"] * rank
    return [*labels[:-1], "element"] if texts[-1:] == ["H"] and "..." in record.dims else labels


def untouched_rows(result: Result, before: HostTensor | None, want: HostTensor) -> np.ndarray | None:
    """Return a mask of the rows of memory, such as the cells of a cache, that the definition leaves as they were.

    Such memory states no axes. Return None for every other result: each of its elements is computed.
    """
    if result.alias_of is None or result.dims or before is None:
        return None
    mask: np.ndarray = (raw_bytes(before) == raw_bytes(want)).all(axis=-1)
    return mask


def same_bits(got: HostTensor, want: HostTensor, untouched: np.ndarray | None = None) -> bool:
    """Return whether all bits agree. NaNs of any pattern are equal, except in rows that a call must leave untouched."""
    return first_difference(got, want, [], untouched=untouched) is None


def _differing(got: HostTensor, want: HostTensor, untouched: np.ndarray | None) -> np.ndarray:
    """bool [..., N]: elements, or blocks of a packed tensor, whose bits differ; see `same_bits`."""
    a, b = raw_bytes(got), raw_bytes(want)
    size = want.format.block_bytes if isinstance(want, Packed) else want.itemsize
    if np.array_equal(a, b):
        return np.zeros((*a.shape[:-1], a.shape[-1] // size), bool)
    differ: np.ndarray = (a != b).reshape(*a.shape[:-1], -1, size).any(axis=-1)
    if isinstance(got, Packed) or isinstance(want, Packed) or want.dtype.kind not in "fV":
        return differ
    both = (np.isnan(got) & np.isnan(want)).reshape(differ.shape)
    return differ & ~(both if untouched is None else both & ~untouched[..., None])


def first_difference(
    got: HostTensor,
    want: HostTensor,
    labels: list[str],
    wrong: np.ndarray | None = None,
    untouched: np.ndarray | None = None,
) -> str | None:
    """Describe the first element whose bits differ in one line; None if all are equal as `same_bits` says.

    wrong      marks the elements to look at; all by default
    untouched  see `untouched_rows`
    """
    if raw_bytes(got).shape != raw_bytes(want).shape:
        return f"shape {list(got.shape)} instead of {list(want.shape)}"
    if isinstance(got, Packed) and isinstance(want, Packed) and got.scale != want.scale:
        return f"tensor scale {got.scale} instead of {want.scale}"
    units = _differing(got, want, untouched)
    if not units.any():
        return None
    if wrong is not None:
        units &= wrong.reshape(*units.shape, -1).any(axis=-1)
    index = tuple(np.argwhere(units)[0].tolist())
    if isinstance(want, Packed) or isinstance(got, Packed):
        a, b = raw_bytes(got)[index[:-1]], raw_bytes(want)[index[:-1]]
        place = ", ".join(f"{label} {i}" for label, i in zip(labels, index[:-1], strict=False))
        size = a.size // units.shape[-1]
        start = index[-1] * size
        byte = start + int(np.argmax(a[start : start + size] != b[start : start + size]))
        values = f"{a[byte]:#04x} instead of {b[byte]:#04x}"
        return f"{place}, block {index[-1]}, byte {byte}: {values} ({int(units.sum())} of {units.size} blocks differ)"
    place = ", ".join(f"{label} {i}" for label, i in zip(labels, index, strict=False))
    values = f"{_value(got, index)} instead of {_value(want, index)}"
    return f"{place}: {values} ({int(units.sum())} of {want.size} elements differ)"


def _value(x: np.ndarray, index: tuple[int, ...]) -> str:
    value = x.reshape(x.shape or (1,))[index]
    pattern = np.asarray(value).tobytes()[::-1].hex()
    return f"{value!s} (0x{pattern})"
