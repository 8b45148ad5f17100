"""top_k and top_k_mask_logits."""

from __future__ import annotations

from samebits.kernels.record import OpCall
from samebits.kernels.wgsl.lib.faults import fault
from samebits.kernels.wgsl.lib.launch import Binding, Call, Dispatch, ceil_div
from samebits.kernels.wgsl.lib.registry import implements
from samebits.kernels.wgsl.select.cut import find_last, gather, prepare_fixed
from samebits.kernels.wgsl.select.parts import GROUP, PART, rows_of, takes
from samebits.kernels.wgsl.select.short import is_short, short_rows

MOST_WINNERS = 8192  # each is compared with every other
NAN = {op: fault(op, "x", "NaN", "no NaN") for op in ("top_k", "top_k_mask_logits")}


def _few_winners(call: OpCall) -> str | None:
    k = call.attrs["k"]
    return takes("x")(call) or (f"k is {k}; top_k of wgsl ranks at most {MOST_WINNERS}" if k > MOST_WINNERS else None)


@implements("top_k", when=_few_winners)
def top_k(call: Call) -> list[Dispatch]:
    """The winners of every part in a list, then each one's place among all of its row."""
    k = int(call.attrs["k"])
    if is_short(call):
        return short_rows(call, "give_ranked", ("values", "indices"), NAN["top_k"], k)
    rows = rows_of(call, call.tensor("x"))
    cut = find_last(call, rows, False)
    list_length = min(k, PART)
    groups_per_list = ceil_div(list_length, GROUP)
    lists = call.scratch(rows.num_rows * rows.num_parts * (list_length + 1))
    values, indices = (Binding(n, t, "write") for n, t in zip(("values", "indices"), call.outputs, strict=True))
    return [
        rows.extent({}),
        prepare_fixed(rows, k, NAN["top_k"]),
        *cut,
        gather(rows, lists, list_length, is_of_kept=True),
        rows.dispatch(
            "rank",
            *(Binding("x", rows.x), Binding("lists", lists), values, indices),
            num_groups=rows.num_parts * groups_per_list,
            params={"list_length": list_length, "groups_per_list": groups_per_list, "k": k},
        ),
    ]


@implements("top_k_mask_logits", when=takes("x"))
def top_k_mask_logits(call: Call) -> list[Dispatch]:
    """The k-th place of every row, then a pass that writes."""
    k = int(call.attrs["k"])
    if is_short(call):
        return short_rows(call, "give_masked", ("y",), NAN["top_k_mask_logits"], k)
    rows = rows_of(call, call.tensor("x"))
    bindings = (Binding("x", rows.x), Binding("state", rows.state), Binding("y", call.outputs[0], "write"))
    return [
        rows.extent({}),
        prepare_fixed(rows, k if k <= rows.length else 0, NAN["top_k_mask_logits"]),
        *find_last(call, rows, False),
        rows.dispatch("mask", *bindings, num_groups=rows.num_parts),
    ]
