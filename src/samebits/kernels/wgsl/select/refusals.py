"""What `sample` refuses, in the reference's words."""

from __future__ import annotations

from samebits.kernels.wgsl.lib.faults import fault
from samebits.ops.sampling import OVERFLOW_WORDS


def _bound(name: str, low: float, high: float) -> int:
    return fault("sample", name, "a value out of range", f"{low} .. {high}")


NOT_FINITE_WORDS = ("a row that is empty, all -Inf or holds +Inf", "a finite logit in every row")
SAMPLE_FAULTS = {
    "NAN": fault("sample", "logits", "NaN", "no NaN"),
    "NOT_FINITE": fault("sample", "logits", *NOT_FINITE_WORDS),
    "BIAS": fault("sample", "bias", "NaN or +Inf", "finite values or -Inf"),
    "NO_TOKEN": fault("sample", "bias", "a row that leaves no token", "a finite logit in every row"),
    "TEMPERATURE": _bound("temperature", 0, 1e6),
    "SMALL_TEMPERATURE": fault("sample", "temperature", "a value out of range", "0, or 0.0001 and more"),
    "TOP_K": _bound("top_k", 0, 2**31 - 1),
    "TOP_P": _bound("top_p", 2.0**-16, 1),
    "MIN_P": _bound("min_p", 0, 1),
    "REPETITION": _bound("repetition", 1e-3, 1e3),
    "PRESENCE": _bound("presence", -1e3, 1e3),
    "FREQUENCY": _bound("frequency", -1e3, 1e3),
    "COUNTS": _bound("counts", 0, 2**24),
    "SAMPLE_INDEX": _bound("sample_index", 0, 2**31 - 1),
    "POSITION": _bound("position", 0, 2**31 - 1),
    "OVERFLOW": fault("sample", "logits", *OVERFLOW_WORDS),
}
