"""sample: bias and penalties, the filters' last places, the draw of every part of a row, the best of the row."""

from __future__ import annotations

from dataclasses import replace

from samebits.core.errors import BadInput
from samebits.kernels.wgsl.lib.launch import Binding, Call, Dispatch, Operand, Tables
from samebits.kernels.wgsl.lib.registry import implements
from samebits.kernels.wgsl.select.cut import find_last
from samebits.kernels.wgsl.select.parts import SETTINGS, Rows, rows_of, takes, with_x
from samebits.kernels.wgsl.select.refusals import NOT_FINITE_WORDS, SAMPLE_FAULTS

COUNTED = ("repetition", "presence", "frequency")
PENALTIES = ("counts", *COUNTED)


def _shape(call: Call, rows: Rows) -> tuple[Dispatch, Operand, Operand]:
    """(the pass that applies bias and penalties, the logits that it writes, what it has seen in every part)."""
    memory = call.scratch(rows.num_rows * rows.length)
    shaped = replace(memory, format="f32", shape=(rows.num_rows, rows.length), row_stride=rows.length)
    notes = call.scratch(rows.num_rows * rows.num_parts)
    bindings = (
        Binding("x", rows.x),
        Binding("bias", call.optional("bias")),
        Binding("counts", call.optional("counts")),
        Tables({name: call.optional(name) for name in COUNTED}),
        Binding("shaped", shaped, "write"),
        Binding("notes", notes, "write"),
    )
    return rows.dispatch("shape", *bindings, num_groups=rows.num_parts), shaped, notes


def _prepare(call: Call, rows: Rows, notes: Operand | None) -> Dispatch:
    """Settings of every row as the other passes read them; refuses what the reference refuses."""
    bindings = (
        Binding("summaries", rows.summaries),
        Binding("notes", notes),
        Tables({name: call.optional(name) for name in (*SETTINGS, *COUNTED)}),
        Binding("state", rows.state, "write"),
    )
    return rows.dispatch("prepare", *bindings, snippets=("sample_settings",), faults=SAMPLE_FAULTS)


@implements("sample", when=takes("logits"))
def sample(call: Call) -> list[Dispatch]:
    """Passes that a row's settings leave nothing to do for return at once."""
    given = [name for name in PENALTIES if call.optional(name) is not None]
    if given and len(given) != len(PENALTIES):
        raise BadInput("sample", "penalties", ", ".join(given), f"all of {', '.join(PENALTIES)}")
    rows = rows_of(call, call.tensor("logits"))
    if not rows.length:
        raise BadInput("sample", "logits", *NOT_FINITE_WORDS)
    found: list[Dispatch] = []
    notes = None
    if given or call.optional("bias") is not None:
        shape, shaped, notes = _shape(call, rows)
        rows = with_x(rows, shaped)
        found.append(shape)
    bindings = (Binding("x", rows.x), Binding("state", rows.state), Binding("summaries", rows.summaries, "write"))
    return [
        *found,
        rows.extent({name: call.tensor(name) for name in SETTINGS}),
        _prepare(call, rows, notes),
        *find_last(call, rows, False, True),
        rows.dispatch("draw", *bindings, num_groups=rows.num_parts),
        rows.pick(call.outputs[0], SAMPLE_FAULTS["NAN"]),
    ]
