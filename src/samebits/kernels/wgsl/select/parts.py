"""Rows in parts that workgroups take, and what they leave behind for each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import prod

from samebits.kernels.record import OpCall
from samebits.kernels.wgsl.lib.launch import MAX_GROUPS, Binding, Call, Dispatch, Operand, Tables, ceil_div
from samebits.kernels.wgsl.lib.registry import only_f32

GROUP = 64  # invocations
PART = 8192  # elements of a row that a workgroup takes
SUMMARY_WORDS = 4  # that each invocation leaves behind; snippets/summaries.wgsl
STATE_WORDS = 16  # of a row; snippets/row_state.wgsl
SETTINGS = ("seed", "sample_index", "position", "temperature", "top_k", "top_p", "min_p")  # of rows of `sample`
# Of a row. In lavapipe an invocation's loops end after 65,535 rounds in all, and finish.wgsl reads a row seven times.
MOST_ELEMENTS = 1 << 19


@dataclass(frozen=True)
class Rows:
    """x [..., K] as rows of K: `x`, and scratch for summaries of parts and the rows' state."""

    x: Operand
    num_rows: int
    length: int
    summaries: Operand
    state: Operand

    @property
    def num_parts(self) -> int:
        return ceil_div(self.length, PART)

    def dispatch(
        self,
        shader: str,
        *bindings: Binding | Tables,
        num_groups: int = 1,
        consts: Mapping[str, int | bool] | None = None,
        params: Mapping[str, int | float] | None = None,
        snippets: tuple[str, ...] = (),
        faults: Mapping[str, int] | None = None,
    ) -> Dispatch:
        """So many workgroups for every row."""
        depth = max(1, ceil_div(self.num_rows, MAX_GROUPS))
        height = ceil_div(self.num_rows, depth)
        return Dispatch(
            f"select/{shader}",
            bindings,
            (num_groups, height, depth),
            consts={"GROUP": GROUP, "PART": PART, **(consts or {})},
            params={
                "num_rows": self.num_rows,
                "num_parts": self.num_parts,
                "length": self.length,
                "inner": prod(self.x.shape[1:-1]),
                **(params or {}),
            },
            snippets=snippets,
            faults=faults or {},
        )

    def extent(self, settings: Mapping[str, Operand | None]) -> Dispatch:
        """The first place of every part, drawn where a row's settings say no more, and its lowest value."""
        tables = Tables({name: settings.get(name) for name in SETTINGS})
        bindings = (Binding("x", self.x), tables, Binding("summaries", self.summaries, "write"))
        return self.dispatch("extent", *bindings, num_groups=self.num_parts)

    def pick(self, indices: Operand, nan_fault: int) -> Dispatch:
        """The index of the first place of every row. Refuses NaN."""
        bindings = (Binding("summaries", self.summaries), Binding("indices", indices, "write"))
        return self.dispatch("pick", *bindings, faults={"NAN": nan_fault})


def rows_of(call: Call, x: Operand) -> Rows:
    """The rows of x, with scratch of the call."""
    num_rows, length = x.num_rows, x.shape[-1]
    summaries = call.scratch(num_rows * ceil_div(length, PART) * GROUP * SUMMARY_WORDS)
    return Rows(x, num_rows, length, summaries, call.scratch(num_rows * STATE_WORDS))


def with_x(rows: Rows, x: Operand) -> Rows:
    """The same rows, with other elements."""
    return replace(rows, x=x)


def takes(name: str) -> Callable[[OpCall], str | None]:
    """A `when`: float32 rows that are not too long."""

    def refusal(call: OpCall) -> str | None:
        length = call.inputs[name].upper_shape[-1]
        too_long = f"rows of {length}; select of wgsl takes at most {MOST_ELEMENTS}"
        return only_f32(name)(call) or (too_long if length > MOST_ELEMENTS else None)

    return refusal
