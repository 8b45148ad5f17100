"""One tensor in one line: what `samebits trace` prints, in a form that `diff` can compare."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from samebits.core.format import HostTensor, Packed, format_of
from samebits.debug.labels import Label
from samebits.verify.harness import raw_bytes
from samebits.verify.tolerance import as_numbers

SHOWN_DIGITS = 12  # shown of a SHA-256


@dataclass(frozen=True)
class Summary:
    """A tensor's facts. min, max and mean_abs are over its finite elements, None where there is none."""

    label: str
    layer: int | None
    op: str
    shape: tuple[int, ...]
    format: str
    first: tuple[str, ...]  # as text, shortest that reads back to the same bits
    min: float | None
    max: float | None
    mean_abs: float | None
    num_nan: int
    num_inf: int
    sha256: str

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def digest(x: HostTensor) -> str:
    """SHA-256 over the stored bytes in row-major order, and for a packed tensor over its scale too."""
    hashed = hashlib.sha256(raw_bytes(x).tobytes())
    if isinstance(x, Packed):
        hashed.update(x.scale.tobytes())
    return hashed.hexdigest()


def summarize(label: Label, op: str, x: HostTensor, num_values: int) -> Summary:
    numbers = as_numbers(x)
    finite = numbers[np.isfinite(numbers)]
    plain = x.unpack() if isinstance(x, Packed) else x
    return Summary(
        label=label.text,
        layer=label.layer,
        op=op,
        shape=tuple(x.shape),
        format=format_of(x).name,
        first=tuple(str(v) for v in plain.reshape(-1)[:num_values]),
        min=float(finite.min()) if finite.size else None,
        max=float(finite.max()) if finite.size else None,
        mean_abs=float(np.abs(finite).mean()) if finite.size else None,
        num_nan=int(np.isnan(numbers).sum()),
        num_inf=int(np.isinf(numbers).sum()),
        sha256=digest(x),
    )


def line(s: Summary, label_width: int) -> str:
    """Columns of fixed width, so that two runs align; the values last, where they may differ in length."""
    spec = f"{s.format}[{', '.join(map(str, s.shape))}]"
    numbers = " ".join(f"{name} {_shown(v):<12}" for name, v in (("min", s.min), ("max", s.max), ("|x|", s.mean_abs)))
    names = f"{s.label:<{label_width}} {s.op:<22} {spec:<24} {s.sha256[:SHOWN_DIGITS]}"
    return f"{names} {numbers} nan {s.num_nan} inf {s.num_inf} [{' '.join(s.first)}]"


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.5g}"
