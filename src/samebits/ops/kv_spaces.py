"""Spaces of the ops on paged caches."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from samebits.core.format import BLOCK
from samebits.core.numerics.counter import Stream
from samebits.ops.record import CACHES, FLOATS
from samebits.ops.space import Choice, Factor, Row, Space, choice, setting, size
from samebits.ops.spaces import ABSENT, MAKING, MOST_ROWS, number

EVEN_HEADS = (
    "32",
    "8",
    "24",
    "40",
    "48",
    "60",
    "64",
    "80",
    "96",
    "100",
    "112",
    "128",
    "160",
    "192",
    "256",
    "512",
    "576",
)
HEADS = (*EVEN_HEADS, "1", "33")
WIDE_HEADS = ("584", "1032")  # beyond what kernels keep in registers, and beyond 1,024
PAGE_SIZES = ("16", "1", "8", "17", "32", "64", "128", "256")
STORED = ("normal", "mixed", "halfway", "zero-stretches", "spikes", "equal", "bounds", "faint", "beyond")
V_DIMS = {"same": 0, "smaller": -1, "larger": 1}
WINDOWS = {"off": -1, "0": 0, "1": 1, "7": 7, "255": 255, "256": 256, "300": 300, "beyond": 1 << 20}
SCALES: dict[str, float | None] = {"default": None, "0.3": 0.3, "0": 0.0, "-0.2": -0.2, "2^-20": 2.0**-20}
CAPS = {"off": 0.0, "30": 30.0, "2.7": 2.7}
SINKS = {ABSENT: "normal", "normal": "normal", "minus-inf": "mostly-minus-inf", "beyond": "beyond"}
SEQUENCE = 10_000  # operations that a sequence costs, however short it is
MANY_SEQUENCES = 1030  # more than 10 bits count
FAR_POSITION = 70_000  # more than 16 bits count
DRAWN_CHUNK = 48  # the longest of drawn chunks of queries
CROWD = 1024  # queries of a sequence beyond its positions
RARE_QUERIES = ("mixed", "crowd")  # only corners have them

STORES = ("split", "unified", "mla")


def cache_factors(heads: tuple[str, ...] = HEADS, kinds: tuple[str, ...] = STORES) -> tuple[Factor, ...]:
    """What every op on a paged cache may branch on; `pool` is the least number of its pages."""
    return (
        size("B", 300, usual=3, corners=MANY_SEQUENCES),
        size("length", 8200, usual=40, corners=FAR_POSITION),
        choice("spread", "ragged", "even", "edges"),
        setting("kind", *kinds),
        setting("layout", "NHD", "HND"),
        choice("page_size", *PAGE_SIZES, least="1"),
        setting("k", *CACHES),
        setting("v", *CACHES),
        size("heads", 70, usual=2),
        choice("head", *heads, least=min(heads, key=int)),
        setting("v_dim", *V_DIMS),
        size("pool", MOST_ROWS, usual=1, far=1 << 22),
    )


_PAGES = "B=2,length=5,spread=even,heads=1"  # at the pool's end
MANY_PAGES = f"{_PAGES},pool=1048580,page_size=1,head=1"  # ids of more than 20 bits
FAR_CELLS = f"{_PAGES},pool=2060,page_size=256,head=32,k=f16,v=f16"  # offsets of more than 24 bits
FAR_LATENT_CELLS = f"{FAR_CELLS},kind=mla"  # the same in one cache, for ops whose calls copy it
# What drawn rows do not reach: several tiles of queries beside a soft cap, slopes and a mask of more than 2^16 entries;
# slopes at distances of more than 11 bits, in a window as large.
LONG_PROMPT = "B=2,length=200,spread=even,heads=1,head=8,group=1,queries=prompt,cap=2.7,alibi=given,mask=random"
LONG_SLOPES = "B=1,length=2100,heads=1,head=8,queries=decode,window=beyond,alibi=given"
FAR_CONTEXT = f"B=1,length={FAR_POSITION},spread=even,heads=1,head=8,page_size=256"
MANY_SHORT = f"B={MANY_SEQUENCES},length=2,spread=even,heads=1,head=8"
MANY_QUERIES = "B=1,length=1030,spread=even,heads=1,head=8,group=1,queries=prompt"  # of one sequence
_CROWD = "length=2,spread=even,heads=1,head=8,queries=crowd,causal=no"
MANY_QUERY_ROWS = f"B=2,group=1,{_CROWD}"  # more than 11 bits count
MANY_QUERY_HEADS = f"B=1,group=64,{_CROWD}"  # more than 65,535 in all, the limit of a grid's second axis
# Prompts and single queries in one batch, some of them at the first position of a page.
MIXED_STEP = "B=24,length=40,spread=edges,heads=1,head=8,queries=mixed"
GROUPS_OF_MODELS = tuple(f"B=2,length=9,spread=even,heads=2,head=8,group={n},queries=prompt" for n in (5, 6, 7, 12))
FAR_ROW = "B=2,length=40,kind=mla,heads=1,head=64,page_size=256,k=f16,v=f16"

TABLE = setting("table", "paged", "contiguous")


def cache_fits(row: Row) -> bool:
    """A unified cache has one format and size; an MLA cache one plain format, one head, values inside the keys."""
    kind, v_dim = row.get("kind"), row.get("v_dim", "same")
    if kind == "unified":
        return v_dim == "same" and ("k" not in row or "v" not in row or row["k"] == row["v"])
    if kind == "mla":
        one = row.get("heads", 1) == 1 and row.get("layout", "NHD") == "NHD" and v_dim != "larger"
        plain = all(row.get(name, "f32") in FLOATS for name in ("k", "v"))
        return one and plain and ("k" not in row or "v" not in row or row["k"] == row["v"])
    return True


def stores_beyond(row: Row) -> bool:
    """Whether the caches can hold values beyond float16."""
    return all(row.get(name, "f32") in ("f32", "bf16") for name in ("k", "v"))


def _append_fits(row: Row) -> bool:
    is_beyond = row.get("values") == "beyond" or row.get("scaling") == "magnified"
    return cache_fits(row) and (not is_beyond or stores_beyond(row))


def _attention_fits(row: Row) -> bool:
    """More queries than positions only without causality. Values beyond float16 need formats that hold them, queries
    or keys of ordinary size on the other side, and a small scale: scores that decide by rounding would tell nothing."""
    if not cache_fits(row) or (row.get("queries") in ("beyond", "crowd") and row.get("causal", "no") == "yes"):
        return False
    if row.get("sinks") == "beyond" and row.get("lse", "yes") == "no":  # nothing else is left of the result
        return False
    beyond = [row.get(name) == "beyond" for name in ("values", "stored")]
    if not any(beyond):
        return True
    return not all(beyond) and row.get("scale", "2^-20") == "2^-20" and row.get("q") != "f16" and stores_beyond(row)


def sequence_lengths(row: Row, stream: Stream) -> tuple[int, ...]:
    """Even ones, ragged ones with empty sequences among them, or those beside the edges of pages and cuts."""
    count, longest, spread = number(row, "B"), number(row, "length"), row["spread"]
    if spread == "even":
        return (longest,) * count
    if spread == "ragged":
        drawn = stream.integers(0, longest + 1, (count,)).tolist()
    else:
        page, words = int(row["page_size"]), stream.integers(0, 1 << 30, (count, 3)).tolist()
        edges = [(page, 256)[a % 2] * (1 + b % max(1, longest // page)) + c % 3 - 1 for a, b, c in words]
        drawn = [min(max(n, 1), longest) for n in edges]
    drawn[stream.child("longest").integers(0, count, (1,))[0]] = longest
    return tuple(drawn)


def cache_extra(row: Row, stream: Stream) -> dict[str, Any]:
    """What kv_cases makes a cache from."""
    head = int(row["head"])
    v_dim = {"same": head, "smaller": max(1, head // 2 + 1), "larger": head + 8}[str(row["v_dim"])]
    lengths = sequence_lengths(row, stream)
    names = ("kind", "layout", "k", "v")
    extra = {name: str(row[name]) for name in names}
    sizes = {"heads": number(row, "heads"), "head": head, "v_dim": v_dim, "pool": number(row, "pool")}
    table = {"table": row.get("table", "paged") == "paged", "page_size": int(row["page_size"]), "lengths": lengths}
    return {**extra, **sizes, **table}


def cache_cells(row: Row) -> int:
    """Elements of the caches: tokens of all sequences, or of the pool if that is larger."""
    per_token = 2 * number(row, "heads") * max(BLOCK, int(row["head"]))
    tokens = number(row, "B") * number(row, "length")
    pages = max(tokens, number(row, "pool") * int(row["page_size"]))
    return per_token * (MAKING * tokens + 8 * pages) + SEQUENCE * number(row, "B")


def query_counts(kind: str, lengths: tuple[int, ...], stream: Stream) -> tuple[int, ...]:
    """Queries of every sequence: one ("decode"), all ("prompt"), some with none among them ("chunks"), or more than
    there are positions ("beyond" and "crowd"), which only a call without causality may ask. "mixed" is a prompt and a
    single query in turn."""
    if kind == "prompt":
        return lengths
    if kind == "decode":
        return tuple(min(1, n) for n in lengths)
    if kind == "mixed":
        return tuple(min(1, n) if b % 2 else n for b, n in enumerate(lengths))
    if kind == "crowd":
        return tuple(n + CROWD for n in lengths)
    drawn = stream.integers(0, DRAWN_CHUNK + 1, (len(lengths),)).tolist()
    if kind == "beyond":
        return tuple(n + d // 4 for n, d in zip(lengths, drawn, strict=True))
    return tuple(min(n, d) for n, d in zip(lengths, drawn, strict=True))


def _attention_case(row: Row) -> dict[str, Any]:
    stream = Stream("attention")
    extra = cache_extra(row, stream.child("lengths"))
    extra["queries"] = query_counts(str(row["queries"]), extra["lengths"], stream.child("queries"))
    extra |= {"group": number(row, "group"), "pages": row["pages"], "q": row["q"]}
    extra |= {"values": row["values"], "stored": row["stored"], "masked_rows": row["mask"] == "masked-rows"}
    extra["sinks"] = SINKS[str(row["sinks"])]
    optional = {"alibi_slopes": row["alibi"], "sinks": row["sinks"], "custom_mask": row["mask"]}
    attrs = {
        "layout": extra["layout"],
        "v_dim": extra["v_dim"],
        "causal": row["causal"] == "yes",
        "sm_scale": SCALES[str(row["scale"])],
        "window_left": WINDOWS[str(row["window"])],
        "logits_soft_cap": CAPS[str(row["cap"])],
        "return_lse": row["lse"] == "yes",
    }
    given = tuple(name for name, value in optional.items() if value != ABSENT)
    return {"dims": {}, "attrs": attrs, "given": given, "extra": extra}


def _attention_cost(row: Row) -> int:
    length = number(row, "length")
    counts = {"prompt": length, "decode": 1, "chunks": min(length, DRAWN_CHUNK), "beyond": length + DRAWN_CHUNK // 4}
    counts |= {"mixed": length, "crowd": length + CROWD}
    queries = counts[str(row["queries"])]
    head, num_heads = int(row["head"]), number(row, "B") * number(row, "heads") * number(row, "group")
    per_head = -(-queries // 64) * (15_000 + 600 * head + 100 * length) + queries * length * 2 * (head + 16)
    return num_heads * (per_head + MAKING * queries * head) + cache_cells(row)


ATTENTION_SPACE = Space(
    (
        *cache_factors((*HEADS, *WIDE_HEADS)),
        TABLE,
        replace(
            choice("queries", "chunks", "decode", "prompt", "beyond", least="decode"),
            rare=tuple(map(Choice, RARE_QUERIES)),
        ),
        size("group", 72, usual=2),
        setting("q", *FLOATS),
        setting("causal", "yes", "no"),
        setting("window", *WINDOWS),
        setting("cap", *CAPS),
        setting("scale", *SCALES),
        setting("alibi", ABSENT, "given"),
        setting("sinks", ABSENT, "normal", "minus-inf", "beyond"),
        setting("mask", ABSENT, "random", "masked-rows"),
        setting("lse", "no", "yes"),
        choice("pages", "scattered", "ordered", "shared", "repeated"),
        choice("values", "normal", "mixed", "halfway", "tiny", "zeros", "spikes", "equal", "bounds", "faint", "beyond"),
        choice("stored", *STORED),
    ),
    _attention_case,
    _attention_cost,
    _attention_fits,
    corners=(
        *(MANY_PAGES, FAR_CELLS, LONG_PROMPT, LONG_SLOPES, MANY_QUERIES, MIXED_STEP),
        *(MANY_QUERY_ROWS, MANY_QUERY_HEADS, *GROUPS_OF_MODELS),
        *(f"{row},group=1,queries=decode" for row in (FAR_CONTEXT, MANY_SHORT)),
    ),
    far_row=FAR_ROW,
)

NEW_CORNERS = tuple(f"{row},new=decode" for row in (FAR_CONTEXT, MANY_SHORT))
NEW_TOKENS: tuple[Factor, ...] = (
    choice("new", "chunks", "decode", "prompt"),
    choice("order", "in-order", "shuffled"),
    setting("key", *FLOATS),
    setting("value", *FLOATS),
    choice("pages", "scattered", "ordered", "shared"),
    choice("values", *STORED, "special"),
)


def _append_case(row: Row) -> dict[str, Any]:
    stream = Stream("append")
    extra = cache_extra(row, stream.child("lengths"))
    extra["new"] = query_counts(str(row["new"]), extra["lengths"], stream.child("new"))
    extra |= {name: row[name] for name in ("order", "pages", "values")}
    formats = {name: str(row[name]) for name in ("key", "value")}
    return {"dims": {}, "attrs": {"layout": extra["layout"]}, "formats": formats, "extra": extra}


def _append_cost(row: Row) -> int:
    return 2 * cache_cells(row)


APPEND_SPACE = Space(
    (*cache_factors(), TABLE, *NEW_TOKENS),
    _append_case,
    _append_cost,
    _append_fits,
    corners=(MANY_PAGES, FAR_LATENT_CELLS, *NEW_CORNERS),
    far_row=FAR_ROW,
)

MAGNITUDES = {"plain": 1.0, "magnified": 2.0**20, "reduced": 2.0**-30}  # of the table of cosines and sines
ROPE_FACTORS: tuple[Factor, ...] = (
    setting("rotary", "all", "half"),
    setting("interleave", "no", "yes"),
    choice("turns", "by-position", "by-others"),  # positions of rope need not be those in the cache
    choice("scaling", *MAGNITUDES),
)


def _rope_case(row: Row) -> dict[str, Any]:
    case = _append_case(row)
    head = case["extra"]["head"]
    case["extra"]["rotary"] = head if row["rotary"] == "all" else head // 2
    case["extra"]["turns"] = row["turns"]
    case["extra"]["magnitude"] = MAGNITUDES[str(row["scaling"])]
    case["attrs"]["interleave"] = row["interleave"] == "yes"
    return case


def _both_case(row: Row) -> dict[str, Any]:
    case = _rope_case(row)
    case["extra"]["group"] = number(row, "group")
    case["formats"]["query"] = str(row["query"])
    return case


ODD_PAIRS = "head=60,rotary=half,interleave=yes"  # 15 pairs of neighbours
ROPE_APPEND_SPACE = Space(
    (*cache_factors(EVEN_HEADS), TABLE, *NEW_TOKENS, *ROPE_FACTORS),
    _rope_case,
    _append_cost,
    _append_fits,
    corners=(FAR_LATENT_CELLS, ODD_PAIRS, *NEW_CORNERS),
    far_row=FAR_ROW,
)
ROPE_BOTH_SPACE = Space(
    (
        *cache_factors(EVEN_HEADS, ("split", "unified")),
        TABLE,
        *NEW_TOKENS,
        *ROPE_FACTORS,
        size("group", 72, usual=2),
        setting("query", *FLOATS),
    ),
    _both_case,
    lambda row: _append_cost(row) * (1 + number(row, "group")),
    _append_fits,
    corners=(FAR_CELLS, ODD_PAIRS, *NEW_CORNERS),
)


def _copy_case(row: Row) -> dict[str, Any]:
    extra = cache_extra(row, Stream("copies"))
    extra |= {"num_copies": number(row, "copies"), "sources": row["sources"]}
    return {"dims": {"N": number(row, "copies")}, "extra": extra}


COPY_SPACE = Space(
    (*cache_factors(), size("copies", 600, least=0, usual=3), choice("sources", "distinct", "one")),
    _copy_case,
    cache_cells,
    lambda row: (
        cache_fits(row) and (not {"copies", "pool"} <= row.keys() or 2 * number(row, "copies") <= number(row, "pool"))
    ),
    corners=(MANY_PAGES, FAR_LATENT_CELLS, *(f"{row},pool=8" for row in (FAR_CONTEXT, MANY_SHORT))),
    far_row=f"{FAR_ROW},pool=8",
)
