"""Independent float64 oracles: what each op means in a textbook, written without the references' code.

An oracle takes the inputs and the case and returns one `Expect` per result. The distance allowed is

    bound * 2^-24 * unit + slack + (half an ulp of the result's format)

`unit` is the size of what the op adds up, so `bound` counts float32 roundings (2^-24 is half an ulp).
`slack` is not zero only where float32 may fall on the other side of a rounding to int8, float16 or bfloat16.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from samebits.core.format import HostTensor, Packed
from samebits.ops.record import Case

NEAR_TIE = 1e-4  # of an int8 step; float32 scaling of a code errs by about 127 * 3 * 2^-24 = 2e-5
TYPES = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}


@dataclass
class Expect:
    value: np.ndarray
    unit: np.ndarray | float = 0.0
    slack: np.ndarray | float = 0.0


def wide(x: HostTensor) -> np.ndarray:
    """Exact float64 values; quantized caches and weights unpacked."""
    if isinstance(x, Packed):
        return decoded(x.data, x.format.name) if x.format.name in ("q8_0", "q4_0") else x.unpack().astype(np.float64)
    return x.astype(np.float64)


def split_blocks(data: np.ndarray, name: str) -> tuple[np.ndarray, np.ndarray]:
    """(scale [..., nb], integer codes [..., nb, 32]) of q8_0 or q4_0 bytes."""
    blocks = data.reshape(*data.shape[:-1], -1, 34 if name == "q8_0" else 18)
    scale = np.ascontiguousarray(blocks[..., :2]).view(np.float16)[..., 0].astype(np.float64)
    body = blocks[..., 2:]
    if name == "q8_0":
        return scale, body.view(np.int8).astype(np.float64)
    return scale, np.concatenate([body & 15, body >> 4], axis=-1).astype(np.float64) - 8


def decoded(data: np.ndarray, name: str) -> np.ndarray:
    scale, codes = split_blocks(data, name)
    with np.errstate(invalid="ignore"):
        return (scale[..., None] * codes).reshape(*data.shape[:-1], -1)


def rounded(x: np.ndarray, dtype: Any) -> np.ndarray:
    return x.astype(dtype).astype(np.float64)


def int8_codes(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """float64 x [..., 32]: (codes, scale [..., 1], one step where the code could as well be its neighbour)."""
    amax = np.abs(x).max(axis=-1, keepdims=True)
    ratio = x * 127 / np.where(amax == 0, 1, amax)
    near = np.abs(np.abs(ratio - np.rint(ratio)) - 0.5) < NEAR_TIE
    return np.rint(ratio), amax / 127, near * (amax / 127)


def add(i: dict, case: Case) -> list[Expect]:
    z = wide(i["x"]) + wide(i["y"])
    return [Expect(z, np.abs(z))]


def mul(i: dict, case: Case) -> list[Expect]:
    z = wide(i["x"]) * wide(i["y"])
    return [Expect(z, np.abs(z))]


def scale(i: dict, case: Case) -> list[Expect]:
    z = wide(i["x"]) * i["factor"]
    return [Expect(z, np.abs(z))]


def cast(i: dict, case: Case) -> list[Expect]:
    return [Expect(wide(i["x"]))]


def soft_cap(i: dict, case: Case) -> list[Expect]:
    x, cap = wide(i["x"]), i.get("cap", 30.0)
    y = cap * np.tanh(x / cap) if cap else x
    return [Expect(y, unit=np.abs(y))]


def split_heads(i: dict, case: Case) -> list[Expect]:
    x = wide(i["x"])
    return [Expect(np.stack(np.split(x, i["heads"], axis=1), axis=1))]


def merge_heads(i: dict, case: Case) -> list[Expect]:
    x = wide(i["x"])
    return [Expect(np.concatenate([x[:, h] for h in range(x.shape[1])], axis=1))]


def slice_columns(i: dict, case: Case) -> list[Expect]:
    return [
        Expect(np.delete(wide(i["x"]), [c for c in range(i["x"].shape[-1]) if not i["start"] <= c < i["stop"]], -1))
    ]


def concat_columns(i: dict, case: Case) -> list[Expect]:
    return [Expect(np.hstack([wide(i["a"]), wide(i["b"])]))]


def embedding(i: dict, case: Case) -> list[Expect]:
    table = wide(i["table"])
    return [Expect(np.array([table[t] for t in i["ids"]]).reshape(-1, table.shape[1]))]


def convert_kv_layout(i: dict, case: Case) -> list[Expect]:
    cache = wide(i["cache"])
    same = i.get("source", "NHD") == i.get("target", "HND")
    return [Expect(cache if same else np.moveaxis(cache, -3, -2))]


def silu_and_mul(i: dict, case: Case) -> list[Expect]:
    gate, up = np.split(wide(i["x"]), 2, axis=-1)
    y = gate / (1 + np.exp(-gate)) * up
    return [Expect(y, np.abs(y))]


def gelu_and_mul(i: dict, case: Case) -> list[Expect]:
    gate, up = np.split(wide(i["x"]), 2, axis=-1)
    if i.get("form", "tanh") == "tanh":
        u = math.sqrt(2 / math.pi) * (gate + 0.044715 * gate**3)
        y = 0.5 * gate * (1 + np.tanh(u)) * up
        return [Expect(y, np.abs(y) * (1 + 2 * np.abs(u)))]  # exp(-2u) magnifies an error of u
    y = gate * 0.5 * (1 + np.vectorize(math.erf, otypes=[float])(gate / math.sqrt(2))) * up
    return [Expect(y, np.abs(y) * (1 + gate**2))]  # the tail is exp(-gate^2 / 2)


def rms(x: np.ndarray, weight: np.ndarray, bias: np.ndarray, eps: float) -> Expect:
    y = x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps) * weight if x.size else x
    return Expect(y + bias, np.abs(y) + np.abs(bias), 2.0**-50 * np.abs(weight))  # settled before the weight


def rms_norm(i: dict, case: Case) -> list[Expect]:
    weight, bias = (wide(i[n]) if n in i else d for n, d in (("weight", np.float64(1)), ("bias", np.float64(0))))
    return [rms(wide(i["x"]), weight, bias, i.get("eps", 1e-5))]


def layer_norm(i: dict, case: Case) -> list[Expect]:
    x = wide(i["x"])
    weight, bias = (wide(i[n]) if n in i else d for n, d in (("weight", np.float64(1)), ("bias", np.float64(0))))
    if not x.size:
        return [Expect(x)]
    eps, mean = i.get("eps", 1e-5), x.mean(axis=-1, keepdims=True)
    y = rms(x - mean, weight, np.float64(0), eps)
    lost = np.abs(x).mean(axis=-1, keepdims=True) / np.sqrt(
        x.var(axis=-1, keepdims=True) + eps
    )  # by taking off the mean
    return [Expect(y.value + bias, y.unit + lost * np.abs(weight) + np.abs(bias), y.slack)]


def fused_add_rms_norm(i: dict, case: Case) -> list[Expect]:
    total = wide(i["residual"]) + wide(i["x"])
    stored = rounded(total.astype(np.float32), i["residual"].dtype)
    y = rms(stored, wide(i["weight"]), np.float64(0), i.get("eps", 1e-5))
    return [y, Expect(total, np.abs(total))]


def capped(s: np.ndarray, cap: float) -> np.ndarray:
    return cap * np.tanh(s / cap) if cap else s


def softmax(i: dict, case: Case) -> list[Expect]:
    s = capped(wide(i["x"]) * i.get("scale", 1.0), i.get("soft_cap", 0.0))
    s = np.where(i["mask"], s, -np.inf) if "mask" in i else s
    sink = wide(i["sinks"])[..., None] if "sinks" in i else np.full((*s.shape[:-1], 1), -np.inf)
    top = np.maximum(s.max(axis=-1, keepdims=True, initial=-np.inf), sink)
    e, rest = np.exp(s - np.where(np.isfinite(top), top, 0)), np.exp(sink - np.where(np.isfinite(top), top, 0))
    total = e.sum(axis=-1, keepdims=True) + rest
    y = e / np.where(total > 0, total, 1)
    return [Expect(y, y * (1 + np.where(y > 0, np.abs(s) + np.abs(top), 0)))]  # exp magnifies an error of s


def rope_angles(num_positions: int, rotary: int, table: dict[str, Any]) -> np.ndarray:
    """position * frequency, by the formulas of the model cards."""
    theta, factor = table.get("theta", 10000.0), table.get("factor", 1.0)
    f = theta ** (-np.arange(0, rotary, 2) / rotary)
    if table.get("scaling") == "linear":
        f = f / factor
    if table.get("scaling") == "llama31":
        low, high, context = 1.0, 4.0, 8192
        smooth = np.clip((context * f / (2 * np.pi) - low) / (high - low), 0, 1)
        f = (1 - smooth) * f / factor + smooth * f
    return np.arange(num_positions)[:, None] * f


def rope(i: dict, case: Case) -> list[Expect]:
    x, num_pairs = wide(i["x"]), case.dims["R"]
    angle = rope_angles(case.dims["P"], 2 * num_pairs, case.extra["table"])[i["pos_ids"]][:, None, :]
    y, unit = x.copy(), np.zeros_like(x)
    for p in range(num_pairs):
        a, b = (2 * p, 2 * p + 1) if i.get("interleave") else (p, p + num_pairs)
        c, s = np.cos(angle[..., p]), np.sin(angle[..., p])
        y[..., a] = x[..., a] * c - x[..., b] * s
        y[..., b] = x[..., b] * c + x[..., a] * s
        unit[..., a] = np.abs(x[..., a] * c) + np.abs(x[..., b] * s)
        unit[..., b] = np.abs(x[..., b] * c) + np.abs(x[..., a] * s)
    return [Expect(y, unit)]


def ranked(row: np.ndarray) -> list[int]:
    return sorted(range(len(row)), key=lambda t: (-float(row[t]), t))


def by_row(x: np.ndarray, fn: Any, width: tuple[int, ...]) -> np.ndarray:
    rows = [fn(r) for r in x.reshape(-1, x.shape[-1])]
    return np.array(rows).reshape(*x.shape[:-1], *width)


def top_k(i: dict, case: Case) -> list[Expect]:
    x, k = wide(i["x"]), i["k"]
    at = by_row(x, lambda r: ranked(r)[:k], (k,)).astype(np.int64)
    return [Expect(np.take_along_axis(x, at, axis=-1)), Expect(at)]


def top_k_mask_logits(i: dict, case: Case) -> list[Expect]:
    def masked(row: np.ndarray) -> np.ndarray:
        keep = set(ranked(row)[: i["k"]])
        return np.array([v if t in keep else -np.inf for t, v in enumerate(row)])

    x = wide(i["x"])
    return [Expect(by_row(x, masked, (x.shape[-1],)))]


def argmax(i: dict, case: Case) -> list[Expect]:
    return [Expect(by_row(wide(i["x"]), lambda r: ranked(r)[0], ()))]


def quantize_q8(i: dict, case: Case) -> list[Expect]:
    x = wide(i["x"])
    codes, step, near = int8_codes(x.reshape(*x.shape[:-1], x.shape[-1] // 32, 32))
    flip = (near > 0).astype(float)
    return [Expect(codes.reshape(x.shape), 0.0, flip.reshape(x.shape)), Expect(step[..., 0], step[..., 0])]


def merge_state(i: dict, case: Case) -> list[Expect]:
    va, sa, vb, sb = (wide(i[n]) for n in ("v_a", "s_a", "v_b", "s_b"))
    wa, wb = np.exp2(sa), np.exp2(sb)
    total = np.where(wa + wb > 0, wa + wb, 1)
    v = (va * wa[..., None] + vb * wb[..., None]) / total[..., None]
    size = (np.abs(va) * wa[..., None] + np.abs(vb) * wb[..., None]) / total[..., None]
    s = np.where(wa + wb > 0, np.log2(total), -np.inf)
    gap = np.where(np.isfinite(sa) & np.isfinite(sb), np.abs(np.where(wa > 0, sa, 0) - np.where(wb > 0, sb, 0)), 0)
    return [Expect(v, size * (1 + gap[..., None])), Expect(s, 1 + np.where(np.isfinite(s), np.abs(s), 0))]


def sigmoid_and_mul(i: dict, case: Case) -> list[Expect]:
    y = wide(i["x"]) / (1 + np.exp(-wide(i["gate"])))
    return [Expect(y, np.abs(y))]


def l2_norm(i: dict, case: Case) -> list[Expect]:
    x = wide(i["x"])
    y = x / np.sqrt((x * x).sum(axis=-1, keepdims=True) + i.get("eps", 1e-5))
    return [Expect(y, np.abs(y))]


def gated_rms_norm(i: dict, case: Case) -> list[Expect]:
    x, gate = wide(i["x"]), wide(i["gate"])
    gate = gate / (1 + np.exp(-gate))
    parts = (x * gate if i.get("gate_first", False) else x).reshape(*x.shape[:-1], i.get("groups", 1), -1)
    parts = parts / np.sqrt((parts * parts).mean(axis=-1, keepdims=True) + i.get("eps", 1e-5))
    y = parts.reshape(x.shape) * wide(i["weight"]) * (1.0 if i.get("gate_first", False) else gate)
    return [Expect(y, np.abs(y))]
