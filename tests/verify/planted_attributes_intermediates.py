"""Elementary functions whose results a kernel keeps in half precision. See planted_attributes.py."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import ClassVar
from unittest.mock import patch

import numpy as np
from planted import F, Results
from planted_attributes import rows, title
from planted_base import Arguments, Defect, Scene, shown_by
from planted_scenes import call, floats
from planted_slots import batch


class InHalf(Defect):
    """One elementary function within the definition of an op, with its results rounded to float16."""

    function: ClassVar[str]  # "norm.rsqrt": the name in the module of the op

    def kernel(self, op_name: str, arguments: Arguments) -> Results:
        module, _, name = self.function.partition(".")
        exact = getattr(import_module(f"samebits.ops.{module}"), name)

        def rounding(x: np.ndarray) -> np.ndarray:
            with np.errstate(over="ignore"):
                return exact(x).astype(np.float16).astype(F)

        with patch(f"samebits.ops.{self.function}", rounding):
            return super().kernel(op_name, arguments)


def of_rows(op_name: str, size: float, operand: str = "x") -> Scene:
    """An op on rows whose operand has values of this size."""
    width = 16 if op_name.endswith("and_mul") and op_name != "sigmoid_and_mul" else 8
    return rows(op_name, **{operand: floats(2, width, seed=4, size=size)})


def of_gates(op_name: str, size: float) -> Scene:
    return of_rows(op_name, size, "gate")


def of_experts(op_name: str, size: float) -> Scene:
    return call(op_name, logits=floats(3, 8, size=size), scores="sigmoid", top_k=2)


def of_states(op_name: str, size: float) -> Scene:
    sums = {name: floats(2, 4, seed=seed, size=size) for seed, name in enumerate(("s_a", "s_b"))}
    return call(op_name, v_a=floats(2, 4, 16), v_b=floats(2, 4, 16, seed=1), **sums)


def of_sequences(op_name: str, size: float, gate: str) -> Scene:
    """A prompt; of size 0, one whose gates are all 40, which softplus leaves as they are."""
    return batch(op_name, "prompt", **({} if size else {gate: 40.0, "dt_bias": 0.0}))


def of_steps(op_name: str, size: float) -> Scene:
    return of_sequences(op_name, size, "dt")


def of_decays(op_name: str, size: float) -> Scene:
    return of_sequences(op_name, size, "a")


# An op, the function, and a scene whose values have a size; float16 holds all that the function gives at size 0.
INTERMEDIATES: tuple[tuple[str, str, Callable[[str, float], Scene]], ...] = (
    ("rms_norm", "norm.rsqrt", of_rows),
    ("layer_norm", "norm.rsqrt", of_rows),
    ("l2_norm", "norm.rsqrt", of_rows),
    ("gated_rms_norm", "norm.sigmoid", of_gates),
    ("silu_and_mul", "activation.sigmoid", of_rows),
    ("gelu_and_mul", "activation.sigmoid", of_rows),
    ("clamped_swiglu", "activation.sigmoid", of_rows),
    ("sigmoid_and_mul", "elementwise.sigmoid", of_gates),
    ("soft_cap", "softmax.tanh", of_rows),
    ("softmax", "softmax.exp", of_rows),
    ("merge_state", "state.exp", of_states),
    ("route", "route.sigmoid", of_experts),
    ("ssm_scan", "ssm.softplus", of_steps),
    ("gated_delta_rule", "delta.softplus", of_decays),
)


def _plant(op_name: str, function: str, build: Callable[[str, float], Scene]) -> None:
    """Define a defect in this module, as `class` would."""
    called = function.partition(".")[2]
    name, doc = title(op_name, called) + "InHalf", f"Keeps the results of {called} in float16."
    shown = {"witness": shown_by(build, op_name, 1.0), "twin": shown_by(build, op_name, 0.0)}
    stated = {"__module__": __name__, "__doc__": doc, "ops": (op_name,), "function": function}
    globals()[name] = type(name, (InHalf,), {**stated, **shown})


for _row in INTERMEDIATES:
    _plant(*_row)
