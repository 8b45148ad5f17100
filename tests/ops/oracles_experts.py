"""Oracles of the ops on mixtures of experts: token by token, choice by choice."""

from __future__ import annotations

import numpy as np
from oracles import Expect, gelu_and_mul, ranked, silu_and_mul, wide
from oracles_cache import gemm, gemm_q8, in_blocks

from samebits.ops.record import Case


def kept(choice: np.ndarray, i: dict) -> set[int]:
    """The experts of the best groups of one token."""
    groups = i.get("groups", 1)
    members = np.split(np.arange(len(choice)), groups)
    best = [sum(sorted(choice[m].tolist(), reverse=True)[: i.get("group_best", 1)]) for m in members]
    return {e for g in ranked(np.array(best))[: i.get("groups_kept", 1)] for e in members[g].tolist()}


def route(i: dict, case: Case) -> list[Expect]:
    logits, rule, k = wide(i["logits"]), i.get("scores", "softmax"), i.get("top_k", 1)
    bias = wide(i["bias"]) if "bias" in i else np.zeros(logits.shape[1])
    ids, weights = np.zeros((len(logits), k), np.int64), np.zeros((len(logits), k))
    for t, row in enumerate(logits):
        exps = np.exp(row - row.max())
        score = {"softmax": exps / exps.sum(), "sigmoid": 1 / (1 + np.exp(-row)), "chosen": row}[rule]
        may = kept(score + bias, i)
        ids[t] = [e for e in ranked(score + bias) if e in may][:k]
        w = score[ids[t]]
        w = np.exp(w - w.max()) / np.exp(w - w.max()).sum() if rule == "chosen" else w
        w = w / (w.sum() + i.get("eps", 0.0)) if i.get("normalize", False) else w
        weights[t] = w * i.get("scale", 1.0)
    size = 1 + np.abs(logits).max(axis=-1, keepdims=True, initial=0)  # exp magnifies an error of a logit
    return [Expect(ids), Expect(weights, np.abs(weights) * size)]


def expert_layout(i: dict, case: Case) -> list[Expect]:
    lists: list[list[int]] = [[] for _ in range(i["num_experts"])]
    for pair, expert in enumerate(i["expert_ids"].reshape(-1).tolist()):
        lists[expert].append(pair)
    ends = [sum(len(one) for one in lists[:e]) for e in range(len(lists) + 1)]
    return [Expect(np.array([p for one in lists for p in one], np.int64)), Expect(np.array(ends))]


def by_pair(i: dict, case: Case, one: object) -> Expect:
    """The product of every pair by itself, with the oracle of a plain product."""
    rows = next(i[name] for name in ("x", "codes") if name in i)
    share = len(i["pairs"]) // max(len(rows), 1)
    y = Expect(*(np.zeros((len(i["pairs"]), i["weight"].shape[1])) for _ in range(3)))
    for expert in range(len(i["seg_indptr"]) - 1):
        for pair in i["pairs"][i["seg_indptr"][expert] : i["seg_indptr"][expert + 1]]:
            row = slice(pair // share, pair // share + 1)
            call = {name: i[name][row] for name in ("x", "codes", "scales") if name in i}
            call |= {name: i[name][expert] for name in ("weight", "bias") if name in i}
            found = one(call, case)[0]
            for whole, part in ((y.value, found.value), (y.unit, found.unit), (y.slack, found.slack)):
                whole[pair] = np.broadcast_to(part, found.value.shape)[0]
    return y


def expert_gemm(i: dict, case: Case) -> list[Expect]:
    return [by_pair(i, case, gemm)]


def expert_gemm_q8(i: dict, case: Case) -> list[Expect]:
    return [by_pair(i, case, gemm_q8)]


def clamped_swiglu(i: dict, case: Case) -> list[Expect]:
    gate, up = np.split(wide(i["x"]), 2, axis=-1)
    alpha, limit = i.get("alpha", 1.702), i.get("limit", 7.0)
    gate, up = np.minimum(gate, limit), np.clip(up, -limit, limit)
    y = (up + 1) * gate / (1 + np.exp(-alpha * gate))
    return [Expect(y, np.abs(y) * (1 + np.abs(alpha * gate)))]  # exp magnifies an error of alpha * gate


def expert_gate_q8(i: dict, case: Case) -> list[Expect]:
    both = by_pair(i, case, gemm_q8)
    act = {"silu": silu_and_mul, "gelu_tanh": gelu_and_mul, "clamped": clamped_swiglu}[i.get("activation", "silu")]
    settings = {name: i[name] for name in ("alpha", "limit") if name in i}
    z = act({"x": both.value, **settings}, case)[0]
    step = 1e-6 * np.abs(both.value).max(initial=1.0)
    slopes = np.zeros_like(z.value)
    for half in np.split(np.arange(both.value.shape[1]), 2):  # how far an error of gate or up carries
        moved = both.value.copy()
        moved[:, half] += step
        slopes += np.abs(act({"x": moved, **settings}, case)[0].value - z.value) / step * both.unit[:, half]
    return in_blocks(z.value, np.asarray(z.unit) + slopes)


def combine(i: dict, case: Case) -> list[Expect]:
    y, w = wide(i["y"]), wide(i["weights"])
    out, unit = np.zeros((len(w), y.shape[1])), np.zeros((len(w), y.shape[1]))
    for t, row in enumerate(w):
        for r, weight in enumerate(row):
            out[t] += weight * y[t * len(row) + r]
            unit[t] += np.abs(weight * y[t * len(row) + r])
    if "shared" in i:
        gate = 1 / (1 + np.exp(-wide(i["shared_gate"]))) if "shared_gate" in i else np.float64(1)
        out, unit = out + gate * wide(i["shared"]), unit + np.abs(gate * wide(i["shared"]))
    return [Expect(out, unit)]
