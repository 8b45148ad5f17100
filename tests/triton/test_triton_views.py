"""Inputs that are views: columns of a wider tensor, whose rows do not lie one behind another."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernel_results import differences

from samebits.backends.gpu.executable import GpuExecutable
from samebits.ops import OPS
from samebits.ops.kv_cases import attention_case

# Inputs with columns that kernels used to read as if their rows lay one behind another.
CALLS = [("rope", "table"), ("rope_and_append", "table"), ("rope_both_and_append", "table"), ("causal_conv", "weight")]


@pytest.mark.parametrize(("op_name", "name"), CALLS)
def test_rows_of_an_input_may_lie_apart(op_name: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    launch, seen = GpuExecutable._launch, []

    def launch_apart(self: Any, node: Any, kernel: Any, values: Any) -> Any:
        near = values[node.inputs[name].name]
        wide = near.new_full((len(near), near[0].numel() + 16), float("nan"))
        apart = wide[:, : near[0].numel()].view(near.shape).copy_(near)
        seen.append(apart.is_contiguous())
        return launch(self, node, kernel, {**values, node.inputs[name].name: apart})

    monkeypatch.setattr(GpuExecutable, "_launch", launch_apart)
    op = OPS[op_name]
    case = min((c for c in op.cases if not c.full and "rotary" not in c.extra), key=lambda c: sum(c.dims.values()))
    with np.errstate(all="ignore"):
        assert list(differences(op, case)) == []
    assert seen
    assert not any(seen)


def test_heads_beyond_1024_elements() -> None:
    case = attention_case(
        "wide", k="f32", v="f32", heads=1, group=1, head=1032, queries=(1,), lengths=(2,), page_size=2
    )
    with np.errstate(all="ignore"):
        assert list(differences(OPS["paged_attention"], case)) == []
