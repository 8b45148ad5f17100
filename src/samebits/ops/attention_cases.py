"""Cases of paged_attention: pairs of everything that varies, edges of pages and cuts, then real models' shapes."""

from __future__ import annotations

from typing import Any

from samebits.ops.kv_cases import attention_case
from samebits.ops.pairwise import Row, pairwise
from samebits.ops.record import CACHES, Case
from samebits.ops.sizes import MODELS

MASKS: dict[str, dict[str, Any]] = {
    "causal": {},
    "not-causal": {"attrs": {"causal": False}},
    "window": {"attrs": {"window_left": 7}},
    "soft-cap": {"attrs": {"logits_soft_cap": 30.0}},
    "alibi": {"given": ("alibi_slopes",)},
    "sinks": {"given": ("sinks",)},
    "custom-mask": {"attrs": {"causal": False}, "given": ("custom_mask",)},
}
STORES: dict[str, dict[str, Any]] = {
    "nhd": {},
    "hnd": {"layout": "HND"},
    "unified": {"kind": "unified"},
    "unified-hnd": {"kind": "unified", "layout": "HND"},
    "contiguous": {"table": False},
}
FACTORS: dict[str, tuple[Any, ...]] = {
    "store": tuple(STORES),
    "k": CACHES,
    "v": CACHES,
    "head": (64, 80, 96, 112, 128, 256, 40),
    "mask": tuple(MASKS),
    "group": (1, 2, 4),
}


def _allowed(row: Row) -> bool:
    """A unified cache has one format."""
    if not str(row.get("store", "")).startswith("unified") or "k" not in row or "v" not in row:
        return True
    return bool(row["k"] == row["v"])


def _pair_case(row: Row) -> Case:
    name = f"{row['store']}-{row['k']}-{row['v']}-d{row['head']}-{row['mask']}-g{row['group']}"
    sizes = {key: row[key] for key in ("k", "v", "head", "group")}
    return attention_case(name, lengths=(21, 34), queries=(4, 1), **sizes, **STORES[row["store"]], **MASKS[row["mask"]])


def _prompt_cases() -> list[Case]:
    """More rows (queries times group) than kernels for decodes take, over several blocks of positions, the last cut.

    By such sizes kernels for prompts are chosen, and those of them for long contexts. Of the last two, one has more
    positions than kernels keep scores of, the other so many heads that programs which stay take several of them.
    """
    f16: dict[str, Any] = {"k": "f16", "v": "f16", "head": 64}
    bf16: dict[str, Any] = {"k": "bf16", "v": "bf16", "head": 128, "heads": 1}
    with_lse = {"return_lse": True}
    return [
        attention_case("prompt-bf16", **bf16, group=4, lengths=(150, 37, 70), queries=(40, 1, 20)),
        attention_case(
            "prompt-window", **f16, group=3, lengths=(201, 30), queries=(50, 30), attrs={"window_left": 70, **with_lse}
        ),
        attention_case(
            "prompt-sinks",
            **bf16,
            q="bf16",
            layout="HND",
            page_size=32,
            lengths=(133,),
            queries=(70,),
            given=("sinks",),
        ),
        attention_case("prompt-long", **bf16, group=4, lengths=(901,), queries=(40,), attrs=with_lse),
        attention_case(
            "prompt-contiguous",
            **f16,
            heads=1,
            group=2,
            table=False,
            lengths=(800,),
            queries=(33,),
            attrs={"causal": False},
        ),
        attention_case(
            "prompt-behind", **bf16, group=3, lengths=(350, 30), queries=(50, 30), attrs={"window_left": 70}
        ),
        attention_case("prompt-far", **f16, heads=1, group=2, lengths=(4500,), queries=(3,)),
        attention_case("prompt-drawn", **f16, heads=34, group=1, lengths=(3, 17) * 2, queries=(2,) * 4),
    ]


def _decode_cases() -> list[Case]:
    """Few queries each over 16-bit caches: few sequences of several cuts, and many, which kernels share out otherwise.

    Some have several queries; of the last there are so many that programs which stay take several, one after another.
    """
    f16: dict[str, Any] = {"k": "f16", "v": "f16"}
    bf16: dict[str, Any] = {"k": "bf16", "v": "bf16"}
    ones = (1, 1, 1)
    many = (1, 16, 40, 255, 257, 70, 3, 17, 90)
    return [
        attention_case("decode-cuts", **bf16, head=128, heads=1, group=4, lengths=(300, 600, 20), queries=ones),
        attention_case(
            "decode-many", **f16, head=64, heads=8, group=3, lengths=many, queries=(1, 1, 2, 1, 3, 1, 1, 1, 1)
        ),
        attention_case(
            "decode-window",
            **f16,
            q="f16",
            head=128,
            heads=1,
            group=8,
            lengths=(530, 90, 300),
            queries=ones,
            attrs={"window_left": 270},
            given=("sinks",),
        ),
        attention_case(
            "decode-contiguous",
            **bf16,
            head=64,
            group=1,
            table=False,
            lengths=(530, 0, 9),
            queries=ones,
            attrs={"causal": False},
        ),
        attention_case(
            "decode-rows",
            **f16,
            head=64,
            heads=1,
            group=4,
            lengths=(300, 40, 700, 5, 21, 9),
            queries=(3, 1, 16, 2, 5, 4),
            attrs={"return_lse": True},
        ),
        attention_case(
            "decode-drawn", **bf16, head=64, heads=34, group=1, lengths=(1, 17, 33, 6) * 5, queries=(1,) * 20
        ),
    ]


def _released_cases() -> list[Case]:
    """Pages behind a window that were given back: blocks of positions that kernels copy begin within them."""
    window: dict[str, Any] = {"queries": (1, 4, 20), "lengths": (70, 40, 90), "attrs": {"window_left": 20}}
    f16: dict[str, Any] = {"k": "f16", "v": "f16"}
    mla: dict[str, Any] = {"kind": "mla", "heads": 1, "group": 8, **f16}
    return [
        attention_case("released-pages", **window),
        attention_case("released-q8_0", k="q8_0", v="q8_0", **window),
        attention_case("released-head-20", heads=1, head=20, **window),
        attention_case("released-mla", head=48, v_dim=32, **mla, **window),
        attention_case("released-mla-wide", head=288, v_dim=272, **mla, **window),
        attention_case("released-one", **f16, head=64, lengths=(90,), queries=(1,), attrs={"window_left": 20}),
    ]


def _beyond_cases() -> list[Case]:
    """More queries than tokens: the first queries stand before the sequence, at negative positions."""
    beyond: dict[str, Any] = {"lengths": (21, 3), "queries": (30, 5), "attrs": {"causal": False, "return_lse": True}}
    latent: dict[str, Any] = {"kind": "mla", "heads": 1, "head": 576, "v_dim": 512, "group": 8}
    return [
        *(attention_case(f"queries-beyond-{n}", k="f16", v="f16", head=n, **beyond) for n in (20, 64, 192)),
        attention_case("queries-beyond-mla", k="bf16", v="bf16", **latent, **beyond),
    ]


def attention_cases() -> list[Case]:
    """All of them; their pairs take a while to find."""
    return [
        # one thing at a time, by name: where a porter starts
        *(attention_case(f"k-{f}-v-{f}", k=f, v=f) for f in CACHES),
        *(attention_case(name, **how) for name, how in STORES.items() if name != "nhd"),
        *(attention_case(name, group=4, **how) for name, how in MASKS.items() if name != "causal"),
        # then every pair of two of them
        *(_pair_case(row) for row in pairwise(FACTORS, _allowed)),
        attention_case("head-576", head=576, lengths=(20,), queries=(3,)),
        attention_case("mla", kind="mla", heads=1, head=576, v_dim=512, group=4, lengths=(19, 3), queries=(2, 1)),
        attention_case(
            "mla-f16",
            kind="mla",
            heads=1,
            head=576,
            v_dim=512,
            k="f16",
            v="f16",
            group=16,
            lengths=(35, 270),
            queries=(1, 1),
        ),
        attention_case(
            "mla-bf16",
            kind="mla",
            heads=1,
            head=288,
            v_dim=272,
            k="bf16",
            v="bf16",
            group=8,
            lengths=(19, 5),
            queries=(3, 1),
        ),
        attention_case(
            "mla-small",
            kind="mla",
            heads=1,
            head=48,
            v_dim=32,
            k="f16",
            v="f16",
            group=8,
            lengths=(19, 5),
            queries=(3, 1),
        ),
        attention_case("decode", queries=(1, 1, 1), lengths=(47, 213, 300)),
        attention_case("page-edges", queries=(1, 1, 1, 2), lengths=(15, 16, 17, 32)),
        attention_case("cut-edges", queries=(2, 1, 3), lengths=(255, 256, 258)),
        attention_case("page-32", page_size=32),
        attention_case("whole-prompt", queries=(5, 16, 40)),
        *_prompt_cases(),
        *_decode_cases(),
        *_beyond_cases(),
        attention_case("resumed-tiles", k="f16", v="f16", heads=1, lengths=(190, 5), queries=(150, 3)),
        attention_case("window-0", attrs={"window_left": 0}),
        attention_case("scale", attrs={"sm_scale": 0.3}),
        attention_case("lse", attrs={"return_lse": True}),
        attention_case("lse-masked", attrs={"return_lse": True}, given=("custom_mask",), unseen="stored"),  # golden
        attention_case("lse-masked-unseen", attrs={"return_lse": True}, given=("custom_mask",)),
        attention_case("bf16-q", q="bf16", k="bf16", v="bf16"),
        attention_case("empty-sequence", queries=(0, 3, 0), lengths=(0, 8, 5), unseen="stored"),  # golden
        attention_case("unseen-sequence", queries=(0, 3, 0), lengths=(0, 8, 5)),
        *_released_cases(),
        attention_case("no-queries", queries=(0,), lengths=(4,)),
        attention_case(
            "mla-128-heads",
            kind="mla",
            heads=1,
            head=576,
            v_dim=512,
            k="bf16",
            v="bf16",
            group=128,
            lengths=(600, 40),
            queries=(1, 3),
            full=True,
        ),
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
        attention_case(
            "paged-benchmark", heads=32, group=1, head=128, lengths=(512,) * 16, queries=(1,) * 16, full=True
        ),
    ]
