"""embedding: rows by id, from the tables that products read too."""

from __future__ import annotations

from samebits.core.format import BLOCK
from samebits.kernels.record import OpCall
from samebits.kernels.wgsl.lib.faults import fault
from samebits.kernels.wgsl.lib.launch import Binding, Call, Dispatch, Operand, ceil_div, linear
from samebits.kernels.wgsl.lib.registry import implements
from samebits.kernels.wgsl.products.block_parts import PARTS
from samebits.kernels.wgsl.products.dense import TYPE_NAMES
from samebits.kernels.wgsl.products.packing import GROUP_ROWS, pack, stretch_consts

GROUP = 64  # invocations
OUTSIDE = fault("embedding", "ids", "an id outside the table", "0 .. rows of the table - 1")


def _table(call: OpCall) -> str | None:
    name = call.inputs["table"].format
    if call.attrs["format"] != "f32":
        return f"wgsl gives rows in f32, not in {call.attrs['format']}"
    taken = (*TYPE_NAMES, *PARTS)
    return None if name in taken else f"wgsl has tables in {', '.join(taken)}, not in {name}"


@implements("embedding", when=_table, prepack={"table": pack})
def embedding(call: Call) -> list[Dispatch]:
    if isinstance(table := call.inputs["table"], Operand):
        return [_gathered(table, call.tensor("ids"), call.outputs[0])]
    table, ids, y = call.weight("table"), call.tensor("ids"), call.outputs[0]
    num_tokens, k, is_block = ids.shape[0], table.shape[1], table.format in PARTS
    units = ceil_div(k, BLOCK if is_block else 4)  # an invocation each
    consts = {"BLOCKS": units, **stretch_consts(table.format)} if is_block else {"FOURS": units}
    return [
        Dispatch(
            "products/embed_blocks" if is_block else "products/embed_dense",
            (Binding("ids", ids), Binding("weight", chunk), Binding("y", y, "write")),
            linear(ceil_div(num_tokens * units, GROUP)),
            consts={"GROUP": GROUP, "K": k, **consts},
            params={
                "row_groups": ceil_div(chunk.num_rows, GROUP_ROWS),
                "first_row": chunk.first_row,
                "num_rows": chunk.num_rows,
                "num_ids": table.shape[0],
                "num_tokens": num_tokens,
            },
            snippets=(f"block_{table.format}" if is_block else f"dense_{table.format}",),
            faults={"OUTSIDE": OUTSIDE},
        )
        for chunk in table.chunks
    ]


def _gathered(table: Operand, ids: Operand, y: Operand) -> Dispatch:
    """Rows of a table that another node made."""
    num_rows, k = table.shape
    return Dispatch(
        "products/gather",
        (Binding("ids", ids), Binding("table", table), Binding("y", y, "write")),
        linear(ceil_div(ids.shape[0] * k, GROUP)),
        consts={"GROUP": GROUP, "K": k},
        params={"first_row": 0, "num_rows": num_rows, "num_ids": num_rows, "num_tokens": ids.shape[0]},
        faults={"OUTSIDE": OUTSIDE},
    )
