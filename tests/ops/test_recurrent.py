"""Ops with states in slots: any split, slot and resumption gives the same bits, and bad batches are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samebits.core.errors import BadInput
from samebits.ops import OPS, bind, call, make_inputs
from samebits.ops.record import Case

IN_SLOTS = ("causal_conv", "gated_delta_rule", "ssm_scan")
NUM_SLOTS = 4


def prompt(name: str) -> dict[str, Any]:
    """The inputs of one sequence of 33 tokens, and poisoned memory of a few slots."""
    op = OPS[name]
    case = next(c for c in op.cases if c.id == "prompt")
    inputs = make_inputs(op, case)
    for memory in op.writes:
        inputs[memory] = np.full((NUM_SLOTS, *inputs[memory].shape[1:]), np.nan, np.float32)
    return inputs


def step(name: str, inputs: dict[str, Any], memory: dict[str, Any], first: int, stop: int, slot: int) -> np.ndarray:
    """The outputs of positions first .. stop - 1; the memory moves on."""
    rows = {t.name: inputs[t.name][first:stop] for t in OPS[name].inputs if t.dims_choices[0].split()[0] == "T"}
    indices = {"qo_indptr": np.array([0, stop - first], np.int32), "slots": np.array([slot], np.int32)}
    return np.asarray(call(OPS[name], **{**inputs, **rows, **indices, **memory})[0])


def fresh(name: str, inputs: dict[str, Any]) -> dict[str, Any]:
    return {memory: inputs[memory].copy() for memory in OPS[name].writes}


@pytest.mark.parametrize("name", IN_SLOTS)
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_a_prompt_in_any_split_and_slot(name: str, data: st.DataObject) -> None:
    inputs = prompt(name)
    whole = step(name, inputs, fresh(name, inputs), 0, 33, 0)
    cuts = sorted(data.draw(st.sets(st.integers(1, 32), max_size=5)))
    slot, memory = data.draw(st.integers(0, NUM_SLOTS - 1)), fresh(name, inputs)
    parts = [step(name, inputs, memory, a, b, slot) for a, b in zip([0, *cuts], [*cuts, 33], strict=True)]
    assert np.concatenate(parts).tobytes() == whole.tobytes()
    others = [s for s in range(NUM_SLOTS) if s != slot]
    assert all(memory[m][others].tobytes() == inputs[m][others].tobytes() for m in memory), "another's slot was written"


@pytest.mark.parametrize("name", IN_SLOTS)
@pytest.mark.parametrize("stop", [16, 21, 32])
def test_a_snapshot_of_the_last_boundary_resumes_there(name: str, stop: int) -> None:
    """It is taken after any step, with no ring and the boundary's carry, and may be used long after."""
    inputs = prompt(name)
    whole = step(name, inputs, fresh(name, inputs), 0, 33, 0)
    memory = fresh(name, inputs)
    step(name, inputs, memory, 0, stop, 1)
    resumed, boundary = fresh(name, inputs), stop - stop % 16
    for m in memory:
        if m == "state":
            resumed[m][3] = memory[m][1]
        if m == "carry":
            resumed[m][3, 1] = memory[m][1, 1]
    assert step(name, inputs, resumed, boundary, 33, 3).tobytes() == whole[boundary:].tobytes()


@pytest.mark.parametrize("name", IN_SLOTS)
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"slots": [NUM_SLOTS]}, "slots"),
        ({"slots": [-1]}, "slots"),
        ({"qo_indptr": [0, 9, 33], "slots": [2, 2]}, "twice"),
        ({"positions": [*range(32), 40]}, "positions"),
        ({"positions": range(-1, 32)}, "positions"),
        ({"qo_indptr": [0, 32]}, "qo_indptr"),
    ],
)
def test_a_batch_that_does_not_add_up_is_refused(name: str, change: dict[str, Any], words: str) -> None:
    inputs = prompt(name) | {key: np.array(list(value), np.int32) for key, value in change.items()}
    before = {m: inputs[m].tobytes() for m in OPS[name].writes}
    with pytest.raises(BadInput, match=words):
        bind(OPS[name], **inputs)
    assert all(inputs[m].tobytes() == before[m] for m in before)


@pytest.mark.parametrize("name", ["gated_delta_rule", "ssm_scan"])
def test_a_state_that_would_grow_and_a_ring_of_another_width_are_refused(name: str) -> None:
    inputs = prompt(name)
    with pytest.raises(BadInput, match="decay"):
        bind(OPS[name], **inputs | {"decay": -inputs["decay"]})
    with pytest.raises(BadInput, match="ring"):
        bind(OPS[name], **inputs | {"ring": inputs["ring"][:, :, :-1].copy()})


def test_value_heads_share_key_heads_as_neighbours_or_in_turn() -> None:
    """With the heads of v in the other order, tiled equals grouped."""
    op = OPS["gated_delta_rule"]
    inputs = make_inputs(op, Case("trap", {"Hk": 2, "H": 6, "K": 8, "V": 4}, extra={"batch": "prompt"}))
    order = np.arange(6).reshape(2, 3).T.ravel()  # grouped head of each tiled one
    tiled = {
        n: inputs[n][..., order, :] if n == "v" else inputs[n][..., order] for n in ("v", "a", "b", "decay", "dt_bias")
    }
    grouped = call(op, **{n: x.copy() for n, x in inputs.items()})
    other = call(op, **{n: x.copy() for n, x in (inputs | tiled).items()}, v_heads="tiled")
    assert np.asarray(grouped[0])[:, order].tobytes() == np.asarray(other[0]).tobytes()
    assert np.asarray(grouped[0]).tobytes() != np.asarray(other[0]).tobytes()
