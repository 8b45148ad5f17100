"""Cases of paged_attention: each dimension varied around a small default, then real models' shapes."""

from __future__ import annotations

from samebits.ops.kv_cases import attention_case
from samebits.ops.record import CACHES, Case
from samebits.ops.sizes import MODELS

HEAD_SIZES = (64, 80, 96, 112, 128, 256, 576, 40)

ATTENTION_CASES: list[Case] = [
    *(attention_case(f"k-{k}-v-{v}", k=k, v=v) for k in CACHES for v in CACHES),
    *(attention_case(f"head-{d}", head=d, lengths=(20,), queries=(3,)) for d in HEAD_SIZES),
    attention_case("head-80-quantized", head=80, k="q8_0", v="q4_0", lengths=(20,), queries=(2,)),
    *(attention_case(f"group-{g}", group=g) for g in (1, 3, 4)),
    attention_case("hnd", layout="HND"),
    attention_case("unified", kind="unified", k="bf16", v="bf16"),
    attention_case("unified-hnd", kind="unified", layout="HND", k="q8_0", v="q8_0"),
    attention_case("mla", kind="mla", heads=1, head=576, v_dim=512, group=4, lengths=(19, 3), queries=(2, 1)),
    attention_case("contiguous", table=False),
    attention_case("decode", queries=(1, 1, 1), lengths=(47, 213, 300)),
    attention_case("page-edges", queries=(1, 1, 1, 2), lengths=(15, 16, 17, 32)),
    attention_case("cut-edges", queries=(2, 1, 3), lengths=(255, 256, 258)),
    attention_case("page-32", page_size=32),
    attention_case("whole-prompt", queries=(5, 16, 40)),
    attention_case("not-causal", attrs={"causal": False}),
    attention_case("window", attrs={"window_left": 7}),
    attention_case("window-0", attrs={"window_left": 0}),
    attention_case("soft-cap", attrs={"logits_soft_cap": 30.0}),
    attention_case("scale", attrs={"sm_scale": 0.3}),
    attention_case("alibi", group=4, given=("alibi_slopes",)),
    attention_case("sinks", given=("sinks",)),
    attention_case("custom-mask", attrs={"causal": False}, given=("custom_mask",)),
    attention_case("lse", attrs={"return_lse": True}),
    attention_case("lse-masked", attrs={"return_lse": True}, given=("custom_mask",)),
    attention_case("bf16-q", q="bf16", k="bf16", v="bf16"),
    attention_case("empty-sequence", queries=(0, 3, 0), lengths=(0, 8, 5)),
    attention_case("no-queries", queries=(0,), lengths=(4,)),
    *(
        attention_case(
            f"ragged-{name}",
            heads=m[3],
            group=m[2] // m[3],
            head=m[4],
            lengths=(47, 213, 891),
            queries=(1, 33, 2),
            full=True,
        )
        for name, m in MODELS.items()
    ),
]
