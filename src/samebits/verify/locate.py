"""Where two tensors differ, said so that a porter can look there: page, slot, head, element, values and bits."""

from __future__ import annotations

from typing import Any

import numpy as np

from samebits.core.format import HostTensor, Packed
from samebits.ops import Op
from samebits.verify.harness import raw_bytes

AXIS_NAMES = {"T": "token", "Hq": "head", "H": "head", "Hkv": "head", "Dv": "element", "D": "element", "K": "element"}
AXIS_NAMES |= {"N": "output", "B": "row", "V": "token id", "NB": "block", "k": "rank"}


def axis_labels(op: Op, result: int, rank: int, attrs: dict[str, Any]) -> list[str]:
    """A word for every axis of a result: what the op's dimensions mean."""
    record = op.results[result]
    if record.alias_of in ("k_cache", "v_cache") or op.name == "convert_kv_layout":
        inner = ["slot", "head"] if attrs.get("layout", attrs.get("target")) == "NHD" else ["head", "slot"]
        return {
            3: ["page", "slot", "element"],
            4: ["page", *inner, "element"],
            5: ["page", "K/V", *inner, "element"],
        }.get(rank, ["axis"] * rank)
    texts = record.dims.split()
    if texts and texts[0] == "...":
        texts = ["row"] * (rank - len(texts) + 1) + texts[1:]
    return [AXIS_NAMES.get(t.split("*")[-1], t) for t in texts][:rank] or ["axis"] * rank


def first_difference(got: HostTensor, want: HostTensor, labels: list[str]) -> str | None:
    """One line on the first element whose bits differ; None when all are equal."""
    a, b = raw_bytes(got), raw_bytes(want)
    if a.shape != b.shape:
        return f"shape {list(got.shape)} instead of {list(want.shape)}"
    if np.array_equal(a, b):
        return None
    wrong = np.argwhere(a != b)
    at, count = wrong[0].tolist(), len(np.unique(wrong[:, :-1], axis=0)) if a.ndim > 1 else len(wrong)
    if isinstance(want, Packed) or isinstance(got, Packed):
        place = ", ".join(f"{label} {i}" for label, i in zip(labels, at[:-1], strict=False))
        block = at[-1] // want.format.block_bytes if isinstance(want, Packed) else 0
        values = f"{a[tuple(at)]:#04x} instead of {b[tuple(at)]:#04x}"
        return f"{place}, block {block}, byte {at[-1]}: {values} ({count} rows differ)"
    itemsize = want.itemsize
    index = (*at[:-1], at[-1] // itemsize)
    place = ", ".join(f"{label} {i}" for label, i in zip(labels, index, strict=False))
    total = len(np.unique(np.flatnonzero((a != b).ravel()) // itemsize))
    return f"{place}: {_value(got, index)} instead of {_value(want, index)} ({total} of {want.size} elements differ)"


def _value(x: np.ndarray, index: tuple[int, ...]) -> str:
    value = x.reshape(x.shape or (1,))[index]
    pattern = np.asarray(value).tobytes()[::-1].hex()
    return f"{value!s} (0x{pattern})"
