"""Oracles of the matrix products and of the ops on paged caches. Tokens are gathered by a plain loop.

They model what the ops state (activations in int8 blocks, Q and P rounded to 16 bits) and compute the rest
in float64. Without the model see `plain_product` and `attention(..., modelled=False)`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from oracles import Expect, capped, fused_add_rms_norm, int8_codes, rope_angles, rounded, split_blocks, wide

from samebits.core.format import HostTensor, Packed
from samebits.ops.record import Case

ROUNDINGS = 4 * 2.0**-24  # how far float32 may be from float64 before a 16-bit rounding, relative to a unit


def nearest(x: np.ndarray, dtype: Any, error: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """x rounded to a 16-bit type, and one step of it wherever `error` could change the outcome."""
    value = rounded(x, dtype)
    low, high = rounded(x - error, dtype), rounded(x + error, dtype)
    return value, high - low


def plain_product(x: np.ndarray, weight: HostTensor) -> np.ndarray:
    return wide(x) @ wide(weight).T


def product(x: np.ndarray, weight: HostTensor) -> Expect:
    """x [T, K] times weight [N, K] with x as the op reads it."""
    w = wide(weight)
    if not isinstance(weight, Packed):
        a = rounded(x.astype(np.float32), weight.dtype)
        return Expect(a @ w.T, np.abs(a) @ np.abs(w).T)
    codes, step, near = int8_codes(wide(x).reshape(len(x), w.shape[1] // 32, 32))
    a, near = (codes * step).reshape(x.shape), near.reshape(x.shape)
    return Expect(a @ w.T, block_sizes(a) @ largest_weights(w).T, near @ np.abs(w).T)


def block_sizes(a: np.ndarray) -> np.ndarray:
    return np.abs(a).reshape(len(a), a.shape[1] // 32, 32).sum(axis=-1)


def largest_weights(w: np.ndarray) -> np.ndarray:
    """Offsets cancel inside a block: its largest weight is the size of what is added up."""
    return np.abs(w).reshape(len(w), w.shape[1] // 32, 32).max(axis=-1)


def gemm(i: dict, case: Case) -> list[Expect]:
    y = product(i["x"], i["weight"])
    bias = wide(i["bias"]) if "bias" in i else np.float64(0)
    return [Expect(y.value + bias, y.unit + np.abs(bias), y.slack)]


def gemm_q8(i: dict, case: Case) -> list[Expect]:
    w, a = wide(i["weight"]), i["codes"].astype(np.float64) * np.repeat(wide(i["scales"]), 32, axis=1)
    bias = wide(i["bias"]) if "bias" in i else np.float64(0)
    return [Expect(a @ w.T + bias, block_sizes(a) @ largest_weights(w).T + np.abs(bias))]


def gemm_silu_q8(i: dict, case: Case) -> list[Expect]:
    y = gemm_q8(i, case)[0]
    (gate, up), (gate_unit, up_unit) = np.split(y.value, 2, axis=-1), np.split(y.unit, 2, axis=-1)
    sigmoid = 1 / (1 + np.exp(-gate))
    z = gate * sigmoid * up
    unit = np.abs(z) + gate_unit * np.abs(up * (sigmoid + z * (1 - sigmoid))) + up_unit * np.abs(gate * sigmoid)
    return in_blocks(z, unit)


def in_blocks(z: np.ndarray, unit: np.ndarray) -> list[Expect]:
    """Codes and scales of rows z [T, K] that were computed to within `unit`."""
    blocks = (len(z), z.shape[1] // 32, 32)
    codes, step, _ = int8_codes(z.reshape(blocks))
    largest = unit.reshape(blocks).max(axis=-1)
    ratio = z.reshape(blocks) / np.where(step == 0, 1, step)
    unsure = ROUNDINGS * 4 * unit.reshape(blocks) / np.where(step == 0, 1, step) + 1e-5 * np.abs(ratio)
    flip = np.abs(np.abs(ratio - np.rint(ratio)) - 0.5) < unsure
    slack = flip.reshape(z.shape).astype(float)
    return [Expect(codes.reshape(z.shape), 0.0, slack), Expect(step[..., 0], largest / 127)]


def add_rms_norm_q8(i: dict, case: Case) -> list[Expect]:
    y, total = fused_add_rms_norm(i, case)
    return [*in_blocks(y.value, np.asarray(y.unit)), total]


def grouped_gemm(i: dict, case: Case) -> list[Expect]:
    y = Expect(*(np.zeros((len(i["x"]), i["weight"].shape[1])) for _ in range(3)))
    for s in range(len(i["seg_indptr"]) - 1):
        group = i["weight_indices"][s] if "weight_indices" in i else s
        for t in range(i["seg_indptr"][s], i["seg_indptr"][s + 1]):
            row = product(i["x"][t : t + 1], i["weight"][group])
            y.value[t], y.unit[t] = row.value[0], row.unit[0]
            y.slack[t] = np.broadcast_to(row.slack, row.value.shape)[0]
    return [y]


def head_gemm(i: dict, case: Case) -> list[Expect]:
    heads = [product(np.ascontiguousarray(i["x"][:, h]), i["weight"][h]) for h in range(i["x"].shape[1])]
    slacks = [np.broadcast_to(y.slack, y.value.shape) for y in heads]
    parts = ([y.value for y in heads], [y.unit for y in heads], slacks)
    return [Expect(*(np.stack(part, axis=1) for part in parts))]


def lengths_of(i: dict) -> list[int]:
    if "kv_indptr" not in i:
        return [int(n) for n in i["kv_last_page_len"]]
    page_size = i["k_cache"].shape[page_axis(i)]
    counts = np.diff(i["kv_indptr"])
    return [int((c - 1) * page_size + n) if c else 0 for c, n in zip(counts, i["kv_last_page_len"], strict=True)]


def page_axis(i: dict) -> int:
    """Which axis of k_cache counts the slots of a page."""
    return {3: 1, 4: 1, 5: 2}[i["k_cache"].ndim] + (i.get("layout", "NHD") == "HND" and i["k_cache"].ndim > 3)


def cell(i: dict, which: int, sequence: int, position: int) -> tuple[str, tuple]:
    """The name of the array and the index of the heads of one token; which: 0 for keys, 1 for values."""
    cache = i["k_cache"]
    page, slot = sequence, position
    if "kv_indptr" in i:
        page_size = cache.shape[page_axis(i)]
        page = int(i["kv_indices"][i["kv_indptr"][sequence] + position // page_size])
        slot = position % page_size
    inner = (slice(None), slot) if i.get("layout", "NHD") == "HND" else (slot,)
    if cache.ndim == 3:
        return "k_cache", (page, slice(slot, slot + 1))
    if cache.ndim == 5:
        return "k_cache", (page, which, *inner)
    return ("v_cache" if which else "k_cache"), (page, *inner)


def gather(i: dict, which: int, sequence: int, length: int) -> HostTensor:
    """[length, H, D] as stored."""
    cells = [cell(i, which, sequence, p) for p in range(length)]
    cache = i[cells[0][0]]
    if isinstance(cache, Packed):
        return Packed(cache.format, np.stack([cache.data[at] for _, at in cells]))
    return np.stack([cache[at] for _, at in cells])


def seen_only(x: HostTensor, seen: np.ndarray) -> HostTensor:
    """Return keys or values [length, H, D] with zeros at positions that no query looks at: they may hold NaN."""
    if isinstance(x, Packed):
        return Packed(x.format, np.where(seen[:, None, None], x.data, 0).astype(x.data.dtype))
    return np.where(seen[:, None, None], x, np.zeros((), x.dtype))


def query_as_read(q: np.ndarray, keys: HostTensor) -> tuple[np.ndarray, np.ndarray]:
    """One head's queries [n, D] as the dot product reads them, and the step where a code is on the edge."""
    if not isinstance(keys, Packed):
        return rounded(q.astype(np.float32), keys.dtype), np.zeros_like(q)
    padded = np.zeros((len(q), keys.shape[-1]))
    padded[:, : q.shape[1]] = q
    codes, step, near = int8_codes(padded.reshape(len(q), -1, 32))
    return (codes * step).reshape(len(q), -1), near.reshape(len(q), -1)


def weighted(p: np.ndarray, error: np.ndarray, v: HostTensor, width: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(sum p * v, sum |p * v|, slack) with P as the op rounds it; p, error [n, kv], v [kv, Dv] as stored."""
    if isinstance(v, Packed):
        d, codes = split_blocks(v.data, v.format.name)
        w, edge = nearest(p[:, :, None] * d, np.float16, error[:, :, None] * np.abs(d))
        value = np.einsum("nkb,kbe->nbe", w, codes).reshape(len(p), -1)[:, :width]
        size = np.einsum("nkb,kbe->nbe", np.abs(w), np.abs(codes)).reshape(len(p), -1)[:, :width]
        return value, size, np.einsum("nkb,kbe->nbe", edge, np.abs(codes)).reshape(len(p), -1)[:, :width]
    values = wide(v)
    w, edge = nearest(p, v.dtype, error)
    return w @ values, w @ np.abs(values), (edge if v.dtype != np.float32 else 0 * edge) @ np.abs(values)


def visible(i: dict, q_position: int, kv_len: int, custom: np.ndarray | None) -> np.ndarray:
    """Position by position: bottom-right causal, window to the left, custom mask."""
    causal, window = i.get("causal", True), i.get("window_left", -1)
    return np.array(
        [
            (not causal or kv <= q_position)
            and (window < 0 or kv >= q_position - window)
            and (custom is None or bool(custom[kv]))
            for kv in range(kv_len)
        ],
        bool,
    )


def paged_attention(i: dict, case: Case) -> list[Expect]:
    return attention(i, modelled=True)


def attention(i: dict, *, modelled: bool) -> list[Expect]:
    q = wide(i["q"])
    num_tokens, num_heads, head = q.shape
    width = i.get("v_dim") or head
    out, lse = ([np.zeros(s) for _ in range(3)] for s in ((num_tokens, num_heads, width), (num_tokens, num_heads)))
    lse[0][:] = -np.inf
    mask_at = 0
    for b, kv_len in enumerate(lengths_of(i)):
        rows = range(i["qo_indptr"][b], i["qo_indptr"][b + 1])
        custom = [None] * len(rows)
        if i.get("custom_mask") is not None:
            custom = list(i["custom_mask"][mask_at : mask_at + len(rows) * kv_len].reshape(len(rows), kv_len))
            mask_at += len(rows) * kv_len
        if not len(rows) or not kv_len:
            continue
        places = np.array([kv_len - len(rows) + r for r in range(len(rows))])
        keep = np.stack([visible(i, p, kv_len, m) for p, m in zip(places, custom, strict=True)])
        keys, values = (seen_only(gather(i, which, b, kv_len), keep.any(axis=0)) for which in (0, 1))
        if i["k_cache"].ndim == 3:
            values = values[..., :width]
        per_kv = num_heads // keys.shape[1]
        for h in range(num_heads):
            got = one_head(
                i,
                q[rows.start : rows.stop, h],
                keys[:, h // per_kv],
                values[:, h // per_kv],
                keep,
                places,
                h,
                width,
                modelled,
            )
            for whole, part in zip((*out, *lse), got, strict=True):
                whole[rows.start : rows.stop, h] = part
    results = [Expect(*out), Expect(*lse)]
    return results if i.get("return_lse") else results[:1]


def one_head(
    i: dict,
    q: np.ndarray,
    k: HostTensor,
    v: HostTensor,
    keep: np.ndarray,
    places: np.ndarray,
    h: int,
    width: int,
    modelled: bool,
) -> tuple:
    """(out, unit, slack, lse, unit, slack) of one head of one sequence."""
    keys = wide(k)
    if modelled:
        q, near = query_as_read(q, k)
    else:
        keys, near = keys[:, : q.shape[1]], np.zeros_like(q)
    sm_scale = i.get("sm_scale") or 1 / math.sqrt(i["q"].shape[-1])
    s = capped(q @ keys.T * sm_scale, i.get("logits_soft_cap", 0.0))
    if i.get("alibi_slopes") is not None:
        s = s + float(i["alibi_slopes"][h]) * (np.arange(len(keys))[None, :] - places[:, None])
    sink = float(i["sinks"][h]) if i.get("sinks") is not None else -np.inf
    s = np.where(keep, s, -np.inf)
    top = np.maximum(s.max(axis=1), sink)
    safe = np.where(np.isfinite(top), top, 0)
    p = np.exp(s - safe[:, None])
    total = p.sum(axis=1) + np.exp(sink - safe)
    seen = np.where(total > 0, total, 1)[:, None]
    # relative error of p in float32 roundings: the dot product, then everything added to it
    size = 1 + np.abs(q) @ np.abs(keys).T * abs(sm_scale) + np.where(keep, np.abs(s), 0) + np.abs(safe)[:, None]
    flip = (near @ np.abs(keys).T * abs(sm_scale)).max(axis=1)
    if not modelled:
        return (
            p @ wide(v)[:, :width] / seen,
            0,
            0,
            np.where(total > 0, np.log2(seen[:, 0]) + safe / math.log(2), -np.inf),
            0,
            0,
        )
    value, magnitude, edge = weighted(p, p * (size * ROUNDINGS + flip[:, None]), v, width)
    mean_size = (p * size).sum(axis=1, keepdims=True) / seen
    largest = np.where(keep, size, 0).max(axis=1, keepdims=True)
    out_slack = (edge + 2 * flip[:, None] * magnitude) / seen
    lse = np.where(total > 0, np.log2(seen[:, 0]) + safe / math.log(2), -np.inf)
    lse_unit = mean_size[:, 0] + np.where(total > 0, np.abs(lse), 0)
    return value / seen, magnitude * (largest + mean_size) / seen, out_slack, lse, lse_unit, flip / math.log(2)


def stored(x: np.ndarray, cache: HostTensor) -> tuple[np.ndarray, np.ndarray]:
    """x [H, D] as a cache of this format gives it back, and the slack: one step on an edge."""
    if not isinstance(cache, Packed):
        return rounded(x.astype(np.float32), cache.dtype), np.zeros_like(x)
    padded = np.zeros((len(x), cache.shape[-1]))
    padded[:, : x.shape[1]] = x
    blocks = padded.reshape(len(x), -1, 32)
    if cache.format.name == "q8_0":
        codes, scale, near = int8_codes(blocks)
    else:
        at = np.abs(blocks).argmax(axis=-1)[..., None]
        extreme = np.take_along_axis(blocks, at, axis=-1)
        ratio = blocks * -8 / np.where(extreme == 0, 1, extreme)
        codes, scale = np.clip(np.rint(ratio), -8, 7), extreme / -8
        near = np.abs(np.abs(ratio - np.rint(ratio)) - 0.5) < 1e-5
    d, edge = nearest(scale, np.float16, np.abs(scale) * 2.0**-22)
    step_slack = (near > 0) * np.abs(d) + np.abs(codes) * edge
    return (codes * d).reshape(padded.shape), step_slack.reshape(padded.shape)


def append_paged_kv_cache(i: dict, case: Case) -> list[Expect]:
    names = [n for n in ("k_cache", "v_cache") if n in i]
    expect = {n: Expect(wide(i[n]), 0.0, np.zeros(wide(i[n]).shape)) for n in names}
    for t, (b, position) in enumerate(zip(i["batch_indices"], i["positions"], strict=True)):
        for which, source in enumerate(("key", "value")):
            if source in i:
                name, at = cell(i, which, int(b), int(position))
                expect[name].value[at], expect[name].slack[at] = stored(wide(i[source][t]), i[name])
    return [expect[n] for n in names]


def copy_kv_pages(i: dict, case: Case) -> list[Expect]:
    expect = [Expect(wide(i[n]), 0.0, 0.0) for n in ("k_cache", "v_cache") if n in i]
    for source, target in zip(i["sources"].tolist(), i["targets"].tolist(), strict=True):
        for cache in expect:
            cache.value[target] = cache.value[source]
    return expect


def copy_slots(i: dict, case: Case) -> list[Expect]:
    value = wide(i["state"])
    for source, target in zip(i["sources"].tolist(), i["targets"].tolist(), strict=True):
        value[target] = value[source]
    return [Expect(value, 0.0, 0.0)]


def turned(i: dict, name: str = "key") -> tuple[np.ndarray, np.ndarray]:
    """Keys [T, H, D] as complex numbers times e^(i angle), and the size of what each element adds up."""
    key, num_pairs = wide(i[name]), i["table"].shape[1]
    angle = rope_angles(i["table"].shape[0], 2 * num_pairs, {})[i["pos_ids"]][:, None, :]
    pairs = np.arange(2 * num_pairs).reshape(-1, 2) if i["interleave"] else np.arange(2 * num_pairs).reshape(2, -1).T
    first, second = pairs.T
    whole = (key[..., first] + 1j * key[..., second]) * np.exp(1j * angle)
    unit = np.abs(key[..., first]) + np.abs(key[..., second])
    value, size = key.copy(), np.zeros_like(key)
    value[..., first], value[..., second] = whole.real, whole.imag
    size[..., first], size[..., second] = unit, unit
    return value, size


def rope_and_append(i: dict, case: Case) -> list[Expect]:
    keys, sizes = turned(i)
    expect = append_paged_kv_cache({**i, "key": keys}, case)
    for t, (b, position) in enumerate(zip(i["batch_indices"], i["positions"], strict=True)):
        at = cell(i, 0, int(b), int(position))[1]
        if isinstance(i["k_cache"], Packed):
            continue  # a code near a tie has its slack already
        if i["k_cache"].dtype == np.float32:
            expect[0].unit = np.zeros(expect[0].value.shape) if np.ndim(expect[0].unit) == 0 else expect[0].unit
            expect[0].unit[at] = sizes[t]
        else:
            expect[0].slack[at] = nearest(keys[t], i["k_cache"].dtype, ROUNDINGS * sizes[t])[1]
    return expect


def rope_both_and_append(i: dict, case: Case) -> list[Expect]:
    return [Expect(*turned(i, "query")), *rope_and_append(i, case)]
