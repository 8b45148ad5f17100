"""Where two tensors differ, said so that a porter can look there: page, slot, head, element, values and bits."""

from __future__ import annotations

from typing import Any

import numpy as np

from samebits.core.format import HostTensor, Packed
from samebits.ops import Op
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


def with_nan_of(got: HostTensor, want: HostTensor) -> HostTensor:
    """`got` with the patterns of `want` where both are NaN: no pattern of it is part of the definition."""
    if isinstance(got, Packed) or isinstance(want, Packed) or got.shape != want.shape or want.dtype.kind not in "fV":
        return got
    both = np.isnan(got) & np.isnan(want)
    return np.where(both, want, got) if both.any() else got


def first_difference(
    got: HostTensor, want: HostTensor, labels: list[str], wrong: np.ndarray | None = None
) -> str | None:
    """One line on the first element whose bits differ, None when all are equal; `wrong` marks the elements meant."""
    a, b = raw_bytes(got), raw_bytes(want)
    if a.shape != b.shape:
        return f"shape {list(got.shape)} instead of {list(want.shape)}"
    if isinstance(got, Packed) and isinstance(want, Packed) and got.scale != want.scale:
        return f"tensor scale {got.scale} instead of {want.scale}"
    if np.array_equal(a, b):
        return None
    size = want.format.block_bytes if isinstance(want, Packed) else want.itemsize
    differ = (a != b).reshape(*a.shape[:-1], -1, size)
    units = differ.any(axis=-1)  # elements, or blocks of a packed tensor
    if wrong is not None:
        units &= wrong.reshape(*units.shape, -1).any(axis=-1)
    index = tuple(np.argwhere(units)[0].tolist())
    if isinstance(want, Packed) or isinstance(got, Packed):
        place = ", ".join(f"{label} {i}" for label, i in zip(labels, index[:-1], strict=False))
        byte = index[-1] * size + int(np.argmax(differ[index]))
        at = (*index[:-1], byte)
        values = f"{a[at]:#04x} instead of {b[at]:#04x}"
        return f"{place}, block {index[-1]}, byte {byte}: {values} ({int(units.sum())} of {units.size} blocks differ)"
    place = ", ".join(f"{label} {i}" for label, i in zip(labels, index, strict=False))
    values = f"{_value(got, index)} instead of {_value(want, index)}"
    return f"{place}: {values} ({int(units.sum())} of {want.size} elements differ)"


def _value(x: np.ndarray, index: tuple[int, ...]) -> str:
    value = x.reshape(x.shape or (1,))[index]
    pattern = np.asarray(value).tobytes()[::-1].hex()
    return f"{value!s} (0x{pattern})"
