"""rope: pairs of a head turned by the table's angles."""

from __future__ import annotations

from samebits.kernels.wgsl.lib.faults import fault
from samebits.kernels.wgsl.lib.launch import Binding, Call, Dispatch, Tables, View, ceil_div, linear
from samebits.kernels.wgsl.lib.registry import implements, only_f32
from samebits.kernels.wgsl.rows.elements import as_matrix

GROUP = 64  # invocations
OUTSIDE_TABLE = fault("rope", "pos_ids", "a position outside the table", "0 .. rows of the table - 1")


@implements("rope", when=only_f32("x"))
def rope(call: Call) -> list[Dispatch]:
    x, y, table, interleave = call.tensor("x"), call.outputs[0], call.tensor("table"), call.attrs["interleave"]
    (num_tokens, num_heads, head_size), (num_positions, num_pairs, _) = x.shape, table.shape
    turns = ceil_div(num_pairs, 2 if interleave else 4)
    steps = turns + ceil_div(head_size - 2 * num_pairs, 4)
    count = num_tokens * num_heads * steps
    view: View = "singles" if num_pairs % 4 else "fours"
    return [
        Dispatch(
            "rows/rope",
            (
                Tables({"pos_ids": call.tensor("pos_ids")}),
                Binding("x", x, view=view),
                Binding("table", as_matrix(table), view=view),
                Binding("y", y, "write", view),
            ),
            linear(ceil_div(count, GROUP)),
            consts={
                "GROUP": GROUP,
                "HEADS": num_heads,
                "D": head_size,
                "R": num_pairs,
                "TURNS": turns,
                "STEPS": steps,
                "INTERLEAVE": interleave,
            },
            params={"count": count, "num_positions": num_positions},
            faults={"OUTSIDE_TABLE": OUTSIDE_TABLE},
        )
    ]
