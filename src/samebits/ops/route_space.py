"""The space of `route`: experts in groups, every rule of scores and weights, contents with ties."""

from __future__ import annotations

from typing import Any

from samebits.ops.space import Row, Space, choice, setting, size
from samebits.ops.spaces import ABSENT, FINITE, MAKING, MOST_ROWS, at_least_one, number

SCORES = ("softmax", "sigmoid", "chosen")
KEPT = ("all", "one", "half", "all-but-one")
EPS = ("0.0", "1e-20", "1e-06", "0.3")
SCALES = ("1.0", "2.5", "16.0", "8.881784197001252e-16", "0.0", "-1.3")
ROW_OPERATIONS = 2000  # of a row, however few experts there are


def groups_kept(row: Row) -> int:
    groups = number(row, "groups")
    return {"all": groups, "one": 1, "half": max(1, groups // 2)}.get(str(row["kept"]), max(1, groups - 1))


def _fits(row: Row) -> bool:
    """Enough experts in the groups that are kept, and in a group."""
    if row.get("groups", "1") == "1" and (row.get("kept", "all") != "all" or row.get("group_best", "1") != "1"):
        return "groups" not in row
    if "size" in row and row.get("group_best") == "2" and number(row, "size") < 2:
        return False
    if not {"size", "top_k", "groups", "kept"} <= row.keys():
        return True
    return number(row, "top_k") <= groups_kept(row) * number(row, "size")


def _case(row: Row) -> dict[str, Any]:
    counts = {name: number(row, name) for name in ("top_k", "groups", "group_best")}
    return {
        "dims": {"T": number(row, "T"), "E": number(row, "groups") * number(row, "size")},
        "attrs": {
            **counts,
            "groups_kept": groups_kept(row),
            "scores": row["scores"],
            "normalize": row["normalize"] == "yes",
            "eps": float(row["eps"]),
            "scale": float(row["scale"]),
        },
        "given": () if row["bias"] == ABSENT else ("bias",),
        "extra": {"values": row["values"]},
    }


def _cost(row: Row) -> int:
    return at_least_one(row, "T") * (ROW_OPERATIONS + 2 * MAKING * number(row, "groups") * number(row, "size"))


FAINT_BIAS = (
    "T=3,groups=1,size=8,kept=all,group_best=1,top_k=2,scores=softmax,normalize=no,eps=0.0,scale=1.0,bias=f32,"
    "values=wide"
)
ROUTE_SPACE = Space(
    (
        size("T", MOST_ROWS, least=0, usual=3),
        setting("groups", "1", "2", "3", "8"),
        size("size", 512, usual=8),
        setting("kept", *KEPT),
        setting("group_best", "1", "2"),
        size("top_k", 64, usual=2),
        setting("scores", *SCORES),
        setting("normalize", "no", "yes"),
        setting("eps", *EPS),
        setting("scale", *SCALES),
        setting("bias", ABSENT, "f32"),
        choice("values", "normal", "plateaus", "sorted", "low", "sunken", *FINITE[1:], "up-to-2^80"),
    ),
    _case,
    _cost,
    _fits,
    (("normalize", "eps"), ("scores", "values"), ("bias", "values")),
    (FAINT_BIAS,),
)
