"""What the op tests share: the cases to run, copies of inputs, and bytes to compare."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from samebits.core.format import HostTensor, Packed
from samebits.ops import OPS, bind, call, evaluate, make_inputs
from samebits.ops.record import Case, Op

# For kernels that walk over rows: a reference takes them all at once, as in the small cases.
MANY_ROWS = ("many-rows", "more-rows", "more-rows-and-tokens")
QUICK = [
    pytest.param(op, case, id=f"{op.name}/{case.id}")
    for op in OPS
    for case in op.cases
    if not case.full and not case.id.endswith(MANY_ROWS)
]


def case_of(op_name: str, case_id: str) -> tuple[Op, Case]:
    op = OPS[op_name]
    return op, next(c for c in op.cases if c.id == case_id)


def inputs_of(op_name: str, case_id: str, **changes: Any) -> dict[str, Any]:
    """Fresh inputs of a case, some of them replaced."""
    return {**make_inputs(*case_of(op_name, case_id)), **changes}


def copied(inputs: dict[str, Any]) -> dict[str, Any]:
    """The same call with buffers of its own."""
    return {name: copy_of(value) for name, value in inputs.items()}


def copy_of(value: Any) -> Any:
    if isinstance(value, Packed):
        return Packed(value.format, value.data.copy(), value.scale)
    return value.copy() if isinstance(value, np.ndarray) else value


def storage(x: HostTensor) -> np.ndarray:
    return x.data if isinstance(x, Packed) else x


def as_bytes(x: HostTensor) -> bytes:
    """Format, shape and bits: two tensors are the same tensor if and only if these agree."""
    kind = x.format.name if isinstance(x, Packed) else str(x.dtype)
    return f"{kind}{list(x.shape)}".encode() + np.ascontiguousarray(storage(x)).tobytes()


def run(op_name: str, /, *args: Any, **kwargs: Any) -> Any:
    return call(OPS[op_name], *args, **kwargs)


def results_of(op: Op, inputs: dict[str, Any]) -> tuple[HostTensor, ...]:
    return evaluate(bind(op, **inputs))


def result_bytes(op: Op, inputs: dict[str, Any]) -> list[bytes]:
    return [as_bytes(r) for r in results_of(op, inputs)]


def assert_same_bits(got: HostTensor, want: HostTensor, what: str = "") -> None:
    assert got.shape == want.shape, what
    differ = storage(got).view(np.uint8) != storage(want).view(np.uint8) if as_bytes(got) != as_bytes(want) else None
    assert differ is None, f"{what}: {differ.sum()} bytes differ"
