"""The last place of a row's ranking that is kept: the k-th, or the last one inside a share of the mass."""

from __future__ import annotations

from samebits.kernels.wgsl.lib.launch import Binding, Call, Dispatch, Operand, ceil_div
from samebits.kernels.wgsl.select.parts import Rows

NUM_BUCKETS = 256
KEY_STEPS = 4  # of eight bits, those of an index after them
LIST_LENGTH = 255  # places of a bucket that a part of a row lists; where there are more, the part is read again


def prepare_fixed(rows: Rows, k: int, nan_fault: int) -> Dispatch:
    """State of rows of which `k` places are kept; 0 keeps all. Refuses NaN."""
    bindings = (
        Binding("summaries", rows.summaries),
        Binding("notes", None),
        Binding("state", rows.state, "write"),
    )
    return rows.dispatch("prepare", *bindings, params={"k": k}, snippets=("fixed_settings",), faults={"NAN": nan_fault})


def gather(rows: Rows, lists: Operand, list_length: int, *, is_of_kept: bool) -> Dispatch:
    """Lists of every part of what lies in the chosen bucket, or of all that is kept."""
    bindings = (Binding("x", rows.x), Binding("state", rows.state), Binding("lists", lists, "write"))
    consts = {"IS_OF_KEPT": is_of_kept}
    return rows.dispatch(
        "gather", *bindings, num_groups=rows.num_parts, consts=consts, params={"list_length": list_length}
    )


def find_last(call: Call, rows: Rows, *rounds: bool) -> list[Dispatch]:
    """The last place kept into the rows' state; a round is one of masses (True) or of counts (False)."""
    sums = call.scratch(rows.num_rows * rows.num_parts * NUM_BUCKETS * 2)
    lists = call.scratch(rows.num_rows * rows.num_parts * (LIST_LENGTH + 1))
    x, state = Binding("x", rows.x), Binding("state", rows.state)
    new_state = Binding("state", rows.state, "write")
    num_steps = KEY_STEPS + ceil_div(rows.length.bit_length(), 8)
    found = []
    for is_mass in rounds:
        consts, params = {"IS_MASS": is_mass}, {"list_length": LIST_LENGTH, "num_steps": num_steps}
        found += [
            rows.dispatch("weigh", x, state, Binding("sums", sums, "write"), num_groups=rows.num_parts, consts=consts),
            rows.dispatch("choose", Binding("sums", sums), new_state, consts=consts),
            gather(rows, lists, LIST_LENGTH, is_of_kept=False),
            rows.dispatch("finish", x, Binding("lists", lists), new_state, consts=consts, params=params),
        ]
    return found
