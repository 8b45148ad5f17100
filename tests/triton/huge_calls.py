"""Calls of every op with more elements than int32 counts: what a GPU with much memory might be asked, and more."""

from __future__ import annotations

from typing import Any

import torch

from samebits.backends.gpu.buffers import empty
from samebits.core.shapes import TensorSpec
from samebits.kernels.triton.lib.devices import MEMORYLESS

Call = tuple[str, dict[str, Any], dict[str, Any]]
TOKENS = 1 << 20
PLAIN = (
    *("silu_and_mul", "gelu_and_mul", "clamped_swiglu", "quantize_q8", "soft_cap", "softmax"),
    *("scale", "l2_norm", "argmax", "rms_norm", "layer_norm"),
)
MODELS_ROWS = ((1 << 23, 1024), (16384, 262144))  # many rows, and rows of a large vocabulary


def t(*shape: int, f: str = "f32") -> Any:
    return empty(TensorSpec(shape, f), MEMORYLESS)


def i(*shape: int) -> torch.Tensor:
    return torch.empty(shape, dtype=torch.int32, device=MEMORYLESS)


def heads_apart(tokens: int, heads: int, size: int, f: str = "f32") -> torch.Tensor:
    """[tokens, heads, size] of which each head's tokens lie together."""
    return t(heads, tokens, size, f=f).transpose(0, 1)


def row_calls() -> list[Call]:
    calls: list[Call] = []
    plain: dict[str, dict[str, Any]] = {
        **{op: {} for op in PLAIN},
        **{"cast": {"format": "f16"}, "slice_columns": {"start": 8, "stop": 1000}, "split_heads": {"heads": 8}},
        **{"top_k": {"k": 8}, "top_k_mask_logits": {"k": 8}},
    }
    for rows, width in MODELS_ROWS:
        x = t(rows, width, f="f16")
        weight = t(width)
        calls += [(op, {"x": x}, attrs) for op, attrs in plain.items()]
        calls += [(op, {"x": x, "y": t(rows, width)}, {}) for op in ("add", "mul")]
        calls += [
            ("rms_norm", {"x": t(rows, 2, width)[:, 0], "weight": weight, "bias": weight}, {}),
            ("layer_norm", {"x": x, "weight": weight, "bias": weight}, {}),
            ("softmax", {"x": x, "mask": t(rows, width, f="bool"), "sinks": t(rows)}, {"soft_cap": 30.0}),
            ("sigmoid_and_mul", {"x": x, "gate": t(rows, 2, width)[:, 1]}, {}),
            ("fused_add_rms_norm", {"x": x, "residual": t(rows, width), "weight": weight}, {}),
            ("add_rms_norm_q8", {"x": x, "residual": t(rows, width), "weight": weight}, {}),
            ("gated_rms_norm", {"x": x, "gate": x, "weight": weight}, {"groups": 2}),
            ("concat_columns", {"a": x, "b": t(rows, 32)}, {}),
        ]
    tokens, heads, size = 1 << 18, 128, 128
    values, sums = t(tokens, heads, size, f="f16"), t(tokens, heads)
    calls += [
        ("merge_heads", {"x": heads_apart(tokens, heads, size)}, {}),
        ("merge_state", {"v_a": values, "s_a": sums, "v_b": values, "s_b": sums}, {}),
        ("rope", {"x": heads_apart(tokens, heads, size), "pos_ids": i(tokens), "table": t(1 << 26, 64, 2)}, {}),
        ("combine", {"y": t(1 << 22, 4096), "weights": t(1 << 19, 8), "shared": t(1 << 19, 4096)}, {}),
        ("embedding", {"table": t(1 << 21, 8192, f="f16"), "ids": i(TOKENS)}, {}),
        ("embedding", {"table": t(1 << 21, 8192, f="q8_0"), "ids": i(TOKENS)}, {}),
        ("embedding", {"table": t(1 << 21, 8192, f="q4_k"), "ids": i(TOKENS)}, {}),
    ]
    return calls


def select_calls() -> list[Call]:
    rows, vocabulary = 16384, 262144
    settings = {name: t(rows) for name in ("temperature", "top_p", "min_p", "repetition", "presence", "frequency")}
    indices = {name: i(rows) for name in ("sample_index", "position", "top_k")}
    logits = {"logits": t(rows, vocabulary), "bias": t(rows, vocabulary), "counts": i(rows, vocabulary)}
    return [
        ("sample", {**logits, "seed": t(rows, 2, f="u32"), **settings, **indices}, {}),
        ("route", {"logits": t(1 << 24, 256), "bias": t(256)}, {"top_k": 8, "groups": 8, "groups_kept": 4}),
        ("expert_layout", {"expert_ids": i(1 << 24, 8)}, {"num_experts": 256}),
    ]


def product_calls() -> list[Call]:
    calls: list[Call] = []
    for f in ("f16", "q8_0", "q4_k"):
        calls += [
            ("gemm", {"x": t(TOKENS, 4096), "weight": t(4096, 4096, f=f), "bias": t(4096)}, {}),
            ("gemm", {"x": t(1 << 17, 512), "weight": t(1, 512, f=f)}, {}),
            *(("gemm", {"x": t(n, 8192), "weight": t(1 << 20, 8192, f=f)}, {}) for n in (1, 4, 40)),
            ("grouped_gemm", {"x": t(TOKENS, 4096), "weight": t(256, 8192, 4096, f=f), "seg_indptr": i(257)}, {}),
            ("head_gemm", {"x": t(1 << 16, 128, 512), "weight": t(128, 512, 512, f=f)}, {}),
            *(
                (
                    "expert_gemm",
                    {
                        "x": t(n, 4096),
                        "weight": t(256, 8192, 4096, f=f),
                        "pairs": i(n * 2),
                        "seg_indptr": i(257),
                        "bias": t(256, 8192),
                    },
                    {},
                )
                for n in (2, TOKENS)
            ),
        ]
    for f in ("q8_0", "q6_k", "nvfp4"):
        calls += [
            *(
                ("gemm_q8", {"codes": t(n, 8192, f="i8"), "scales": t(n, 256), "weight": t(1 << 20, 8192, f=f)}, {})
                for n in (1, 4, 40, 200)
            ),
            ("gemm_q8", {"codes": t(TOKENS, 4096, f="i8"), "scales": t(TOKENS, 128), "weight": t(8192, 4096, f=f)}, {}),
            *(
                ("gemm_silu_q8", {"codes": t(n, 4096, f="i8"), "scales": t(n, 128), "weight": t(8192, 4096, f=f)}, {})
                for n in (4, TOKENS)
            ),
        ]
    for op in ("expert_gemm_q8", "expert_gate_q8"):
        for n in (2, TOKENS):
            codes = {"codes": t(n, 4096, f="i8"), "scales": t(n, 128), "pairs": i(n * 2), "seg_indptr": i(257)}
            calls.append((op, {**codes, "weight": t(256, 8192, 4096, f="q4_k"), "bias": t(256, 8192)}, {}))
    return calls


def caches(kind: str, f: str, heads: int = 8, size: int = 128) -> tuple[dict[str, Any], dict[str, Any]]:
    """(caches and their tables, attrs): of pages, with or without a head's slots together, or whole sequences."""
    sequences, pages, length = 64, 1 << 20, 1 << 22
    if kind == "paged":
        shape = (pages, 16, heads, size)
    else:
        shape = (sequences, heads, length, size) if kind == "HND" else (sequences, length, heads, size)
    tables = {"kv_last_page_len": i(sequences)}
    if kind == "paged":
        tables |= {"kv_indptr": i(sequences + 1), "kv_indices": i(1 << 20)}
    return (
        {"k_cache": t(*shape, f=f), "v_cache": t(*shape, f=f), **tables},
        {"layout": "HND" if kind == "HND" else "NHD"},
    )


def attention_calls() -> list[Call]:
    calls: list[Call] = []
    forms = [(kind, f, size) for kind in ("paged", "HND") for f, size in (("f16", 128), ("bf16", 192), ("q8_0", 128))]
    for kind, f, size in [*forms, ("contiguous", "f16", 64), ("contiguous", "f32", 20)]:
        stored, attrs = caches(kind, f, size=size)
        for tokens in (64, 1 << 18):
            given = {"q": heads_apart(tokens, 128, size), "qo_indptr": i(65), **stored}
            calls.append(("paged_attention", given, {**attrs, "return_lse": True, "window_left": 4096}))
    latent = t(1 << 20, 64, 576, f="bf16")
    for tokens in (64, 1 << 18):
        tables = {"kv_last_page_len": i(64), "kv_indptr": i(65), "kv_indices": i(1 << 20)}
        given = {"q": heads_apart(tokens, 128, 576), "k_cache": latent, "qo_indptr": i(65), **tables}
        calls.append(("paged_attention", given, {"v_dim": 512}))
    return calls


def cache_calls() -> list[Call]:
    calls: list[Call] = []
    for kind in ("paged", "HND", "contiguous"):
        for f in ("f16", "q8_0", "q4_0"):
            stored, attrs = caches(kind, f)
            places = {"batch_indices": i(TOKENS), "positions": i(TOKENS), **stored}
            key = heads_apart(TOKENS, 8, 128)
            turned = {"key": key, "value": key, "pos_ids": i(TOKENS), "table": t(1 << 26, 64, 2), **places}
            calls.append(("append_paged_kv_cache", {"key": key, "value": key, **places}, attrs))
            calls.append(("rope_and_append", turned, attrs))
            calls.append(("rope_both_and_append", {"query": heads_apart(TOKENS, 64, 128), **turned}, attrs))
    pages = {"k_cache": t(1 << 20, 16, 8, 128, f="f16"), "v_cache": t(1 << 20, 16, 8, 128, f="f16")}
    some = {"sources": i(1 << 17), "targets": i(1 << 17)}
    return [
        *calls,
        ("copy_kv_pages", {**pages, **some}, {}),
        ("copy_slots", {"state": t(1 << 17, 32, 128, 128), **some}, {}),
        ("convert_kv_layout", {"cache": pages["k_cache"]}, {}),
        ("convert_kv_layout", {"cache": t(2, 1 << 24, 8, 128, f="f16")}, {}),
    ]


def recurrent_calls() -> list[Call]:
    calls: list[Call] = []
    for tokens in (4096, TOKENS):
        batch = {"qo_indptr": i(4097), "positions": i(tokens), "slots": i(4096)}
        x = t(tokens, 16384)
        carry = t(1 << 16, 2, 3, 16384)
        calls.append(("causal_conv", {"x": x, "weight": t(16384, 4), "carry": carry, "bias": t(16384), **batch}, {}))
        for k in (96, 128):
            heads, v = 64, 128
            memory = {"state": t(1 << 14, heads, k, v), "ring": t(1 << 14, 16, 16 * k + heads * v + heads)}
            keys = {name: heads_apart(tokens, 16, k) for name in ("q", "k")}
            gates = {"a": t(tokens, heads), "b": t(tokens, heads), "decay": t(heads), "dt_bias": t(heads)}
            given = {**keys, "v": heads_apart(tokens, heads, v), **gates, **memory, **batch}
            calls.append(("gated_delta_rule", given, {}))
            memory = {"state": t(1 << 14, heads, k, v), "ring": t(1 << 14, 16, 8 * k + heads * v + heads)}
            keys = {name: heads_apart(tokens, 8, k) for name in ("B", "C")}
            gates = {"dt": t(tokens, heads), "decay": t(heads), "dt_bias": t(heads), "D": t(heads)}
            calls.append(("ssm_scan", {"x": heads_apart(tokens, heads, v), **keys, **gates, **memory, **batch}, {}))
    return calls


GROUPS = {
    "rows": row_calls,
    "select": select_calls,
    "products": product_calls,
    "attention": attention_calls,
    "caches": cache_calls,
    "recurrent": recurrent_calls,
}
