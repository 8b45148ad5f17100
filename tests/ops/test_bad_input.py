"""Bad calls are refused in one line that says what was given and what is needed, before anything is written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from op_helpers import as_bytes, case_of, inputs_of

from samebits.core.errors import BadInput
from samebits.core.format import Packed
from samebits.ops import OPS, bind, call, make_inputs

Change = Callable[[dict[str, Any]], dict[str, Any]]


def i32(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def put(name: str, at: Any, value: float) -> Change:
    """The input with one place overwritten."""

    def change(i: dict[str, Any]) -> dict[str, Any]:
        x = i[name].copy()
        x[at] = value
        return {name: x}

    return change


def give(**values: Any) -> Change:
    return lambda i: values


def misaligned(x: np.ndarray) -> np.ndarray:
    buffer = np.zeros(x.nbytes + 1, np.uint8)
    view = buffer[1:].view(x.dtype).reshape(x.shape)
    view[...] = x
    return view


def read_only(name: str) -> Change:
    def change(i: dict[str, Any]) -> dict[str, Any]:
        storage = i[name].data if isinstance(i[name], Packed) else i[name]
        storage.flags.writeable = False
        return {}

    return change


F32_ROW = np.zeros((3, 96), np.float32)
PLAIN, APPEND, ATTEND = "small-f32", "append_paged_kv_cache", "paged_attention"
# append f16-bf16: lengths 5, 16, 40 in pages of 16; new 2, 16, 7; attention the same lengths, 5, 1 and 9 queries
# op, case, change, argument, given, needed
BAD: list[tuple[str, str, Change, str, str, str]] = [
    # any op
    ("rms_norm", PLAIN, give(x=F32_ROW.astype(np.float64)), "x", "float64", "f32 or f16 or bf16"),
    ("rms_norm", PLAIN, give(x=F32_ROW.astype(">f4")), "x", ">f4", "f32 or f16 or bf16"),
    ("rms_norm", PLAIN, give(x=[[1.0]]), "x", "list", "a numpy array"),
    ("rms_norm", PLAIN, give(x=None), "x", "nothing", "a tensor ... K"),
    ("rms_norm", PLAIN, give(x=np.zeros((), np.float32)), "x", "shape []", "[..., K]"),
    ("rms_norm", PLAIN, give(weight=np.zeros(95, np.float32)), "weight", "shape [95]", "[K=96]"),
    ("rms_norm", PLAIN, lambda i: {"x": misaligned(i["x"])}, "x", "a misaligned buffer", "a multiple of 4"),
    ("rms_norm", PLAIN, give(gain=1.0), "gain", "an unknown argument", "one of bias, eps, weight, x"),
    ("rms_norm", PLAIN, give(eps=-1e-5), "eps", "-1e-05", "2^-50 or more"),
    ("rms_norm", PLAIN, give(eps=float("nan")), "eps", "nan", "a finite float32 number"),
    ("rms_norm", PLAIN, give(eps=1e300), "eps", "1e+300", "a finite float32 number"),
    ("rms_norm", PLAIN, give(eps="1e-5"), "eps", "'1e-5'", "float"),
    ("rms_norm", PLAIN, give(eps=True), "eps", "True", "float"),
    ("rms_norm", PLAIN, give(eps=np.zeros((3, 3))), "eps", "array([[0., 0., 0.], [0.", "float"),
    ("scale", PLAIN, give(factor=10**400), "factor", "1000", "a finite float32 number"),
    ("cast", "f32-to-f16", give(format="q8_0"), "format", "'q8_0'", "one of f32, f16, bf16"),
    ("add", PLAIN, give(y=np.zeros((2, 96), np.float32)), "y", "shape [2, 96]", "[..., K=96] or [K=96]"),
    ("silu_and_mul", PLAIN, give(x=np.zeros((2, 7), np.float32)), "x", "shape [2, 7]", "2*H"),
    ("gelu_and_mul", PLAIN, give(form="x"), "form", "'x'", "'tanh' or 'erf'"),
    ("fused_add_rms_norm", PLAIN, read_only("residual"), "residual", "a read-only buffer", "written in place"),
    ("fused_add_rms_norm", PLAIN, give(weight=None), "weight", "nothing", "a tensor K"),
    ("fused_add_rms_norm", PLAIN, give(weight=np.zeros(3, np.float32)), "weight", "shape [3]", "[K=96]"),
    ("fused_add_rms_norm", PLAIN, give(eps=-1.0), "eps", "-1.0", "2^-50 or more"),
    # choosing and sampling
    ("top_k", PLAIN, give(k=0), "k", "0", "1 or more"),
    ("top_k", PLAIN, give(k=65), "k", "65", "at most the row length 64"),
    ("top_k", PLAIN, give(k=2.0), "k", "2.0", "int"),
    ("top_k", PLAIN, give(k=True), "k", "True", "int"),
    ("top_k", PLAIN, put("x", (1, 2), np.nan), "x", "NaN at 66", "no NaN"),
    ("top_k_mask_logits", PLAIN, give(k=-1), "k", "-1", "1 or more"),
    ("top_k_mask_logits", PLAIN, put("x", (0, 3), np.nan), "x", "NaN at 3", "no NaN"),
    ("argmax", PLAIN, put("x", (0, 3), np.nan), "x", "NaN at 3", "no NaN"),
    ("argmax", PLAIN, give(x=np.zeros((2, 0), np.float32)), "x", "shape [2, 0]", "not empty"),
    ("softmax", PLAIN, put("x", (0, 0), np.nan), "x", "NaN or +Inf", "finite values or -Inf"),
    ("softmax", PLAIN, put("x", (0, 0), np.inf), "x", "NaN or +Inf", "finite values or -Inf"),
    ("softmax", PLAIN, give(soft_cap=-1.0), "soft_cap", "-1.0", "0 (off) or"),
    ("softmax", PLAIN, give(soft_cap=1e-35), "soft_cap", "1e-35", "0 (off) or"),
    ("softmax", "sinks", put("sinks", 0, np.nan), "sinks", "NaN or +Inf", "finite values or -Inf"),
    ("softmax", "mask", give(mask=np.ones(300, np.uint8)), "mask", "u8", "bool"),
    ("sample", PLAIN, put("logits", (0, 0), np.nan), "logits", "NaN at 0", "no NaN"),
    ("sample", PLAIN, put("logits", (0, 0), np.inf), "logits", "holds +Inf", "a finite logit in every row"),
    ("sample", PLAIN, put("logits", 1, -np.inf), "logits", "all -Inf", "a finite logit in every row"),
    ("sample", PLAIN, give(bias=np.full((4, 100), np.nan, np.float32)), "bias", "NaN or +Inf", "finite values or -Inf"),
    ("sample", PLAIN, give(bias=np.full((4, 100), -np.inf, np.float32)), "bias", "no token", "a finite logit"),
    ("sample", PLAIN, put("temperature", 0, -1.0), "temperature", "[-1.0]", "0 .. 1000000.0"),
    ("sample", PLAIN, put("temperature", 0, np.nan), "temperature", "[nan]", "0 .. 1000000.0"),
    ("sample", PLAIN, put("temperature", 0, 1e-5), "temperature", "[9.99", "0, or 0.0001 and more"),
    ("sample", PLAIN, put("top_k", 0, -1), "top_k", "[-1]", "0 .. "),
    ("sample", PLAIN, put("top_p", 0, 0.0), "top_p", "[0.0]", ".. 1"),
    ("sample", PLAIN, put("top_p", 0, 1.5), "top_p", "[1.5]", ".. 1"),
    ("sample", PLAIN, put("min_p", 0, 2.0), "min_p", "[2.0]", "0 .. 1"),
    ("sample", PLAIN, put("position", 0, -1), "position", "[-1]", "0 .. "),
    ("sample", "penalties", put("repetition", 0, 0.0), "repetition", "[0.0]", "0.001 .. 1000.0"),
    ("sample", "penalties", give(presence=None), "penalties", "counts, repetition, frequency", "all of counts"),
    # tables and products
    ("embedding", PLAIN, put("ids", 2, 50), "ids", "50 at 2", "0 .. 49"),
    ("embedding", PLAIN, put("ids", 2, -1), "ids", "-1 at 2", "0 .. 49"),
    ("embedding", PLAIN, give(ids=np.zeros(3, np.int64)), "ids", "i64", "i32"),
    ("gemm", "small-q8_0", give(x=np.zeros((3, 480), np.float32)), "weight", "shape [40, 512]", "K=480"),
    ("gemm", PLAIN, give(weight=np.zeros((40, 512))), "weight", "float64", "f32 or f16"),
    ("gemm", "small-q8_0", put("x", (0, 0), np.inf), "x", "NaN, Inf", "finite values"),
    ("gemm", "small-f16", put("x", (0, 0), 70000.0), "x", "beyond the type's range", "finite float16 values"),
    ("gemm", "small-bf16", put("x", (0, 0), 2.0**64), "x", "beyond the type's range", "finite bfloat16 values"),
    ("quantize_q8", PLAIN, put("x", (0, 0), np.nan), "x", "NaN", "finite values"),
    ("quantize_q8", PLAIN, give(x=np.zeros((1, 33), np.float32)), "x", "shape [1, 33]", "32*NB"),
    ("grouped_gemm", "indices", put("seg_indptr", 0, 1), "seg_indptr", "first entry [1]", "0 first"),
    ("grouped_gemm", "indices", put("seg_indptr", 2, 0), "seg_indptr", "1 then 0 at 1", "never fall"),
    ("grouped_gemm", "indices", put("seg_indptr", 4, 9), "seg_indptr", "last entry 9", "the total 8"),
    ("grouped_gemm", "indices", put("weight_indices", 1, 3), "weight_indices", "3 at 1", "0 .. 2"),
    ("head_gemm", PLAIN, give(x=np.zeros((3, 4, 256), np.float32)), "weight", "shape [2, 24, 256]", "H=4"),
    ("grouped_gemm", PLAIN, give(seg_indptr=i32(0, 5)), "seg_indptr", "1 segments", "one per weight: 3"),
    # experts
    ("route", "mixtral", put("logits", (1, 2), np.nan), "logits", "NaN or Inf", "finite values"),
    ("route", "mixtral", put("logits", (1, 2), -np.inf), "logits", "NaN or Inf", "finite values"),
    ("route", "groups", put("bias", 3, np.inf), "bias", "NaN, Inf or a magnitude above 2^80", "finite values"),
    ("route", "mixtral", give(top_k=9), "top_k", "9", "at most the 8 experts that may be chosen"),
    ("route", "mixtral", give(top_k=0), "top_k", "0", "1 or more"),
    ("route", "groups", give(top_k=17), "top_k", "17", "at most the 16 experts that may be chosen"),
    ("route", "groups", give(groups=5), "groups", "2 kept of 5", "equal groups of 32 experts"),
    ("route", "groups", give(groups_kept=5), "groups", "5 kept of 4", "no more kept than there are"),
    ("route", "groups", give(groups=32, groups_kept=8), "group_best", "2", "at most the 1 experts of a group"),
    ("route", "groups", give(group_best=3), "group_best", "3", "1 or 2"),
    ("route", "mixtral", give(scores="tanh"), "scores", "'tanh'", "'softmax' or 'sigmoid' or 'chosen'"),
    ("route", "mixtral", give(eps=-1.0), "eps", "-1.0", "0 .. 1"),
    ("expert_layout", "small", put("expert_ids", (1, 1), 8), "expert_ids", "8 at 3", "0 .. 7"),
    ("expert_layout", "small", put("expert_ids", (0, 0), -1), "expert_ids", "-1 at 0", "0 .. 7"),
    ("expert_gemm", PLAIN, put("pairs", 0, 10), "pairs", "10 at 0", "0 .. 9"),
    ("expert_gemm", PLAIN, lambda i: put("pairs", 0, i["pairs"][1])(i), "pairs", "more than once", "every pair once"),
    ("expert_gemm", PLAIN, put("seg_indptr", 4, 9), "seg_indptr", "last entry 9", "the total 10"),
    ("expert_gemm", PLAIN, lambda i: {"x": i["x"][:4]}, "pairs", "10 pairs", "a multiple of the 4 rows"),
    ("expert_gemm", PLAIN, lambda i: {"x": np.tile(i["x"], (3, 1))}, "pairs", "10 pairs", "a multiple of the 15 rows"),
    ("expert_gemm", PLAIN, put("weight", (0, 0, 0), np.nan), "weight", "NaN, Inf", "finite float32 values"),
    ("expert_gemm", "small-f16", put("x", (0, 0), 70000.0), "x", "beyond the type's range", "finite float16 values"),
    ("expert_gemm_q8", "small-q4_0", put("codes", (0, 0), -128), "codes", "-128", "-127 .. 127"),
    ("expert_gemm_q8", "small-q4_0", put("scales", (0, 0), np.inf), "scales", "NaN or Inf", "finite values"),
    ("expert_gate_q8", "small-q4_0", put("codes", (0, 0), -128), "codes", "-128", "-127 .. 127"),
    ("expert_gate_q8", "small-q4_0", give(activation="relu"), "activation", "'relu'", "'silu' or 'gelu_tanh'"),
    ("expert_gate_q8", "small-q4_0", put("seg_indptr", 0, 1), "seg_indptr", "first entry [1]", "0 first"),
    ("clamped_swiglu", PLAIN, give(limit=0.0), "limit", "0.0", "2^-24 .. 2^24"),
    ("combine", PLAIN, lambda i: {"y": i["y"][:5]}, "y", "5 pairs", "2 for each of 3 tokens"),
    ("combine", PLAIN, give(shared_gate=np.zeros((3, 1), np.float32)), "shared_gate", "no shared row", "shared too"),
    ("rope", PLAIN, put("pos_ids", 1, 512), "pos_ids", "512 at 1", "0 .. 511"),
    ("rope", PLAIN, put("pos_ids", 1, -1), "pos_ids", "-1 at 1", "0 .. 511"),
    (
        "rope",
        PLAIN,
        give(table=np.zeros((512, 9, 2), np.float32)),
        "table",
        "rotary size 18",
        "at most the head size 16",
    ),
    ("merge_state", PLAIN, put("s_a", (0, 0), np.nan), "s_a", "NaN or +Inf", "finite values or -Inf"),
    ("merge_state", PLAIN, put("s_b", (0, 0), np.inf), "s_b", "NaN or +Inf", "finite values or -Inf"),
    ("convert_kv_layout", "split-f32", give(source="XYZ"), "source", "'XYZ'", "'NHD' or 'HND'"),
    ("convert_kv_layout", "split-f32", give(cache=np.zeros((3, 4, 32), np.float32)), "cache", "3 axes", "4 (split)"),
    ("copy_kv_pages", "f16-bf16", put("targets", 0, 99), "targets", "99 at 0", "0 .. "),
    ("copy_kv_pages", "f16-bf16", put("sources", 0, -1), "sources", "-1 at 0", "0 .. "),
    ("copy_kv_pages", "f16-bf16", lambda i: put("targets", 0, i["targets"][1])(i), "targets", "twice", "every target"),
    ("copy_kv_pages", "f16-bf16", lambda i: put("targets", 0, i["sources"][1])(i), "targets", "a source", "nothing"),
    ("copy_slots", "ring", put("targets", 0, 99), "targets", "99 at 0", "0 .. "),
    ("copy_slots", "ring", put("sources", 0, -1), "sources", "-1 at 0", "0 .. "),
    ("copy_slots", "ring", lambda i: put("targets", 0, i["targets"][1])(i), "targets", "twice", "every target"),
    ("copy_slots", "ring", lambda i: put("targets", 0, i["sources"][1])(i), "targets", "a source", "nothing"),
    ("copy_kv_pages", "f16-bf16", give(v_cache=None), "v_cache", "nothing", "values beside a split k_cache"),
    # append
    (APPEND, "f16-bf16", read_only("k_cache"), "k_cache", "a read-only buffer", "written in place"),
    (APPEND, "q8_0-q4_0", read_only("v_cache"), "v_cache", "a read-only buffer", "written in place"),
    (APPEND, "f16-bf16", put("kv_last_page_len", 1, 0), "kv_last_page_len", "0 for sequence 1", "1 .. 16"),
    (APPEND, "f16-bf16", put("kv_last_page_len", 1, 17), "kv_last_page_len", "17 for sequence 1", "1 .. 16"),
    (APPEND, "f16-bf16", put("kv_indptr", 0, 1), "kv_indptr", "first entry [1]", "0 first"),
    (APPEND, "f16-bf16", put("kv_indptr", 3, 4), "kv_indptr", "last entry 4", "the total 5"),
    (APPEND, "f16-bf16", put("kv_indptr", 1, 3), "kv_indptr", "3 then 2 at 1", "never fall"),
    (APPEND, "f16-bf16", put("kv_indices", 0, 8), "kv_indices", "8 at 0", "0 .. 7"),
    (APPEND, "f16-bf16", put("kv_indices", 0, -1), "kv_indices", "-1 at 0", "0 .. 7"),
    (
        APPEND,
        "f16-bf16",
        lambda i: put("kv_indices", 0, i["kv_indices"][1])(i),
        "kv_indices",
        "listed twice",
        "its own",
    ),
    (
        APPEND,
        "f16-bf16",
        lambda i: put("kv_indices", 2, i["kv_indices"][4])(i),
        "kv_indices",
        "listed twice",
        "a page of its own",
    ),
    (APPEND, "f16-bf16", give(kv_indices=None), "kv_indptr", "one of kv_indptr and kv_indices", "both, or neither"),
    (APPEND, "f16-bf16", put("positions", 0, 4), "positions", "slot 4 twice", "one token a cell"),
    (APPEND, "f16-bf16", put("positions", 0, 5), "positions", "5 for token 0", "0 .. 4 in sequence 0"),
    (APPEND, "f16-bf16", put("positions", 0, -1), "positions", "-1 for token 0", "0 .. 4 in sequence 0"),
    (APPEND, "f16-bf16", put("batch_indices", 0, 3), "batch_indices", "3 at 0", "0 .. 2"),
    (APPEND, "f16-bf16", put("batch_indices", 0, -1), "batch_indices", "-1 at 0", "0 .. 2"),
    (APPEND, "f16-bf16", put("key", (24, 1, 31), 70000.0), "key", "beyond the type's range", "finite float16 values"),
    (APPEND, "f16-bf16", put("value", (24, 1, 31), np.nan), "value", "NaN", "finite bfloat16 values"),
    (APPEND, "bf16-q8_0", put("value", (24, 1, 31), np.nan), "value", "NaN", "finite values"),
    (APPEND, "bf16-q8_0", put("value", (24, 1, 31), 1e8), "value", "scale exceeds float16", "the cache can hold"),
    (APPEND, "q4_0-f32", put("key", (24, 1, 31), -np.inf), "key", "Inf", "finite values"),
    (APPEND, "q4_0-f32", put("value", (24, 1, 31), np.inf), "value", "Inf", "finite float32 values"),
    (APPEND, "f16-bf16", give(layout="XYZ"), "layout", "'XYZ'", "'NHD' or 'HND'"),
    (APPEND, "f16-bf16", give(layout="HND"), "key", "2 heads", "the cache's 16"),
    (
        APPEND,
        "f16-bf16",
        lambda i: {"key": i["key"][:, :1], "value": i["value"][:, :1]},
        "key",
        "1 heads",
        "the cache's 2",
    ),
    (APPEND, "f16-bf16", lambda i: {"key": i["key"][..., :16]}, "k_cache", "heads of 32", "heads of 16"),
    (APPEND, "f16-bf16", give(v_cache=None), "v_cache", "nothing", "values beside a split k_cache"),
    (APPEND, "hnd", lambda i: {"v_cache": i["k_cache"]}, "v_cache", "memory that k_cache holds too", "its own"),
    (APPEND, "f16-bf16", give(value=None), "value", "nothing", "one, except with an MLA cache"),
    (APPEND, "mla", lambda i: {"value": i["key"]}, "value", "a tensor", "one, except with an MLA cache"),
    (APPEND, "unified", lambda i: {"v_cache": i["k_cache"][:, 0]}, "v_cache", "k_cache of 5 axes", "4 axes"),
    (APPEND, "contiguous", put("kv_last_page_len", 2, 41), "kv_last_page_len", "41 for sequence 2", "0 .. 40"),
    # attention
    (ATTEND, "decode", put("q", (0, 0, 0), np.nan), "q", "NaN or Inf", "finite values"),
    (ATTEND, "decode", put("q", (0, 0, 0), 70000.0), "q", "beyond the type's range", "finite float16 values"),
    (ATTEND, "sinks", put("sinks", 0, np.nan), "sinks", "NaN or +Inf", "finite values or -Inf"),
    (ATTEND, "alibi", put("alibi_slopes", 0, np.inf), "alibi_slopes", "NaN or Inf", "finite values"),
    (ATTEND, "decode", give(layout="XYZ"), "layout", "'XYZ'", "'NHD' or 'HND'"),
    (ATTEND, "decode", give(window_left=-2), "window_left", "-2", "-1 (off) or more"),
    (ATTEND, "decode", give(causal=1), "causal", "1", "bool"),
    (ATTEND, "decode", give(sm_scale=float("inf")), "sm_scale", "inf", "a finite float32 number"),
    (ATTEND, "decode", give(v_dim=-1), "v_dim", "-1", "0 (that of q) or more"),
    (ATTEND, "decode", give(v_dim=16), "v_cache", "heads of 32", "heads of 16"),
    (ATTEND, "decode", give(logits_soft_cap=-30.0), "logits_soft_cap", "-30.0", "0 (off) or"),
    (ATTEND, "decode", lambda i: {"q": i["q"][:, :3]}, "q", "3 heads", "a multiple of the cache's 2"),
    (ATTEND, "decode", give(qo_indptr=i32(0, 1, 2)), "kv_last_page_len", "shape [3]", "[B=2]"),
    (ATTEND, "decode", give(qo_indptr=i32(0, 2, 1, 3)), "qo_indptr", "2 then 1 at 1", "never fall"),
    (ATTEND, "decode", give(qo_indptr=i32(0, 1, 2, 2)), "qo_indptr", "last entry 2", "the total 3"),
    (
        ATTEND,
        "whole-prompt",
        give(qo_indptr=i32(0, 6, 21, 61)),
        "qo_indptr",
        "6 queries in sequence 0",
        "at most its length 5",
    ),
    (ATTEND, "custom-mask", lambda i: {"custom_mask": i["custom_mask"][1:]}, "custom_mask", "400 entries", ": 401"),
    (ATTEND, "decode", put("kv_indices", 3, 99), "kv_indices", "99 at 3", "0 .. 38"),
    (ATTEND, "decode", put("kv_last_page_len", 0, 0), "kv_last_page_len", "0 for sequence 0", "1 .. 16"),
    (ATTEND, "mla", give(v_dim=577), "k_cache", "v_dim 577", "v_dim at most 576"),
    (ATTEND, "mla", give(v_cache=np.zeros((6, 16, 1, 512), np.float16)), "v_cache", "k_cache of 3 axes", "4 axes"),
    (
        ATTEND,
        "contiguous",
        lambda i: {n: i[n][:2] for n in ("k_cache", "v_cache")},
        "k_cache",
        "2 pages",
        "sequence: 3",
    ),
]


@pytest.mark.parametrize(
    ("op_name", "case_id", "change", "argument", "given", "needed"),
    BAD,
    ids=[f"{n}-{b[0]}-{b[3]}" for n, b in enumerate(BAD)],
)
def test_bad_call_is_refused_in_one_line_and_writes_nothing(op_name, case_id, change, argument, given, needed):
    op, case = case_of(op_name, case_id)
    inputs = make_inputs(op, case)
    inputs.update(change(inputs))
    before = {n: as_bytes(inputs[n]) for n in op.writes if inputs.get(n) is not None}
    with pytest.raises(BadInput) as caught:
        call(op, **inputs)
    message = str(caught.value)
    assert message.startswith(f"{op_name}: {argument} "), message
    assert given in caught.value.given, message
    assert needed in caught.value.needed, message
    assert "\n" not in message
    assert {n: as_bytes(inputs[n]) for n in before} == before


@pytest.mark.parametrize(
    ("args", "kwargs", "argument", "given"),
    [
        ((F32_ROW,) * 4, {}, "arguments", "4 by position"),
        ((F32_ROW,), {"x": F32_ROW}, "x", "two values"),
        ((), {}, "x", "missing"),
    ],
)
def test_wrong_number_of_arguments(args, kwargs, argument, given):
    with pytest.raises(BadInput, match=f"^rms_norm: {argument} (is|has) {given}"):
        call(OPS["rms_norm"], *args, **kwargs)


def test_a_shared_page_that_is_only_read_is_allowed():
    """Prefix sharing: two sequences may list the same page as long as nobody writes it."""
    inputs = inputs_of(ATTEND, "decode")
    inputs["kv_indices"][3] = inputs["kv_indices"][0]
    assert np.isfinite(call(OPS[ATTEND], **inputs)).all()


def test_a_refused_call_does_not_settle_what_it_would_update() -> None:
    x, residual = np.full((1, 32), np.nan, np.float32), np.full((1, 32), 2.0**-60, np.float32)
    with pytest.raises(BadInput, match="normalised row"):
        bind(OPS["add_rms_norm_q8"], x, residual, np.ones(32, np.float32))
    assert (residual == np.float32(2.0**-60)).all()
    bind(OPS["add_rms_norm_q8"], np.ones_like(x), residual, np.ones(32, np.float32))
    assert (residual == 0).all()
