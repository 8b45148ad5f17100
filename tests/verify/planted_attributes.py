"""Attributes that a kernel ignores, takes from another one or keeps in half precision. Intermediates in half precision
are in planted_attributes_intermediates.py.

Every row of the tables below is a defect of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from planted_base import Arguments, Defect, Scene, shown_by
from planted_scenes import append, attention, blocks, call, floats, ints, rotary

from samebits.ops import OPS, make_inputs
from samebits.ops.rope import rope_table


class AttributeDefect(Defect):
    """One attribute of one op, which the kernel replaces by what `replaced` makes of the call's arguments."""

    attr: ClassVar[str]

    def change(self, a: Arguments) -> Arguments:
        """Replace the attribute, unless the op refuses what would take its place."""
        value = self.replaced(a)
        accepts = next(attr for attr in OPS[self.ops[0]].attrs if attr.name == self.attr).accepts
        return {} if accepts is not None and accepts(value) else {self.attr: value}

    def replaced(self, a: Arguments) -> Any:
        raise NotImplementedError


def rows(op_name: str, **more: Any) -> Scene:
    """An op on rows, with small operands where it takes any."""
    operands = {"gate": floats(2, 8, seed=1), "weight": floats(8, seed=2), "residual": floats(2, 8, seed=3)}
    needed = {t.name for t in OPS[op_name].inputs if not t.optional}
    given = {name: operand for name, operand in operands.items() if name in needed}
    return call(op_name, **{"x": floats(2, 8, size=0.5), **given, **more})


def normalized_q8(**more: Any) -> Scene:
    wide = {"x": floats(2, 32, size=0.01), "residual": floats(2, 32, seed=1, size=0.01), "weight": floats(32, seed=2)}
    return call("add_rms_norm_q8", **wide, **more)


def routed(**more: Any) -> Scene:
    return call("route", logits=floats(64, 8), **{"top_k": 2, **more})


def gated_experts(**more: Any) -> Scene:
    """Two tokens of one expert each, and activations that limits cut."""
    weight = floats(2, 64, 32, seed=1, fmt="q8_0", size=2.0)
    return call("expert_gate_q8", **blocks(2, 32), weight=weight, pairs=ints(0, 1), seg_indptr=ints(0, 1, 2), **more)


def rotated(op_name: str, **more: Any) -> Scene:
    query = {"query": floats(1, 2, 8, seed=6)} if op_name == "rope_both_and_append" else {}
    return append([4], op_name=op_name, pos_ids=ints(9), table=rope_table(16, 8), **query, **more)


def sequence(**more: Any) -> Scene:
    """Attention of the last two queries over six positions."""
    return attention((6,), (2,), **more)


def recurrence(op_name: str, **attrs: Any) -> Scene:
    """The case "prompt" of an op in slots, with these attributes."""
    op = OPS[op_name]
    case = next(c for c in op.cases if c.id == "prompt")
    return call(op_name, **make_inputs(op, replace(case, attrs={**case.attrs, **attrs})))


# A call of an op, the attribute, its value in the witness, and what else the call states.
CALLS: tuple[tuple[Callable[..., Scene], str, str, Any, dict[str, Any]], ...] = (
    (rows, "gelu_and_mul", "form", "erf", {}),
    (rows, "clamped_swiglu", "alpha", 1.1, {}),
    (rows, "clamped_swiglu", "limit", 0.3, {}),
    (rows, "soft_cap", "cap", 3.3, {}),
    (rows, "softmax", "scale", 0.3, {}),
    (rows, "softmax", "soft_cap", 0.7, {}),
    (sequence, "paged_attention", "causal", False, {}),
    (sequence, "paged_attention", "sm_scale", 0.3, {}),
    (sequence, "paged_attention", "window_left", 1, {}),
    (sequence, "paged_attention", "logits_soft_cap", 0.7, {}),
    (recurrence, "causal_conv", "activation", "silu", {}),
    (recurrence, "gated_delta_rule", "scale", 0.3, {}),
    (recurrence, "gated_delta_rule", "v_heads", "tiled", {}),
    (rows, "scale", "factor", 0.3, {}),
    (rotary, "rope", "interleave", True, {}),
    (rotated, "rope_and_append", "interleave", True, {}),
    (rotated, "rope_both_and_append", "interleave", True, {}),
    (gated_experts, "expert_gate_q8", "activation", "gelu_tanh", {}),
    (gated_experts, "expert_gate_q8", "alpha", 1.1, {"activation": "clamped"}),
    (gated_experts, "expert_gate_q8", "limit", 0.3, {"activation": "clamped"}),
    (rows, "rms_norm", "eps", 0.1, {}),
    (rows, "fused_add_rms_norm", "eps", 0.1, {}),
    (rows, "layer_norm", "eps", 0.1, {}),
    (rows, "l2_norm", "eps", 0.1, {}),
    (rows, "gated_rms_norm", "eps", 0.1, {}),
    (rows, "gated_rms_norm", "gate_first", True, {}),
    (rows, "gated_rms_norm", "groups", 2, {}),
    (normalized_q8, "add_rms_norm_q8", "eps", 0.1, {}),
    (rows, "top_k_mask_logits", "k", 3, {}),
    (routed, "route", "scores", "sigmoid", {}),
    (routed, "route", "groups_kept", 2, {"groups": 4}),
    (routed, "route", "group_best", 2, {"groups": 4}),
    (routed, "route", "normalize", True, {}),
    (routed, "route", "eps", 0.1, {"normalize": True}),
    (routed, "route", "scale", 0.3, {}),
    (recurrence, "ssm_scan", "dt_min", 0.7, {}),
    (recurrence, "ssm_scan", "dt_max", 0.7, {}),
)
TWIN_IN_HALF = 0.5  # float16 holds it
# Attributes that fix the shape or the number of results, or the order of axes: a kernel cannot overlook them.
OF_SHAPES = {"v_dim", "return_lse", "format", "heads", "start", "stop", "num_experts", "layout", "source", "target"}
TIED_TO_SHAPES = {("top_k", "k"), ("route", "top_k"), ("route", "groups")}  # fewer leave no legal call
TAKEN = (  # op, an attribute, and the one that a kernel takes in its place
    ("clamped_swiglu", "alpha", "limit"),
    ("clamped_swiglu", "limit", "alpha"),
    ("expert_gate_q8", "alpha", "limit"),
    ("expert_gate_q8", "limit", "alpha"),
    ("softmax", "soft_cap", "scale"),
    ("paged_attention", "logits_soft_cap", "sm_scale"),
    ("route", "eps", "scale"),
    ("ssm_scan", "dt_min", "dt_max"),
    ("ssm_scan", "dt_max", "dt_min"),
)


def title(*names: str) -> str:
    return "".join(word.capitalize() for name in names for word in name.split("_"))


def in_half(value: float | None) -> float | None:
    """Return a number as float16 keeps it; one beyond float16, or None, as it is."""
    with np.errstate(over="ignore"):
        rounded = np.inf if value is None else float(np.float16(value))
    return rounded if np.isfinite(rounded) else value


def _scenes(op_name: str, attr: str) -> tuple[Callable[..., Scene], Any]:
    """Return what builds a call of the op from attributes, and the value that shows the attribute."""
    make, value, fixed = next((m, v, f) for m, name, a, v, f in CALLS if (name, a) == (op_name, attr))
    first = {recurrence: (op_name,), rows: (op_name,), rotated: (op_name,), rotary: ([5, 9],)}.get(make, ())
    return lambda **attrs: make(*first, **{**fixed, **attrs}), value


def _planted(name: str, doc: str, op_name: str, attr: str, replaced: Any, witness: Any, twin: Any) -> None:
    """Define a defect under its name in this module, as `class` would."""
    stated = {"__module__": __name__, "__doc__": doc, "ops": (op_name,), "attr": attr, "replaced": replaced}
    shown = {"witness": shown_by(*witness), "twin": shown_by(*twin)}
    globals()[name] = type(name, (AttributeDefect,), {**stated, **shown})


def _plant_ignored(op_name: str, attr: str) -> None:
    default = next(a.default for a in OPS[op_name].attrs if a.name == attr)
    build, value = _scenes(op_name, attr)

    other = 0.5 if attr == "sm_scale" else default  # None stands for 1/sqrt(D)
    head = {"head": 4} if attr == "sm_scale" else {}
    doc = f"Ignores `{attr}`: computes with {default!r}, whatever the call says."
    named = title(op_name, attr) + "Ignored"
    witness, twin = (lambda: build(**{attr: value}, **head),), (lambda: build(**{attr: other}, **head),)
    _planted(named, doc, op_name, attr, lambda self, a: default, witness, twin)


def _plant_in_half(op_name: str, attr: str) -> None:
    build, value = _scenes(op_name, attr)
    named, doc = title(op_name, attr) + "InHalf", f"Keeps `{attr}` in float16."
    witness, twin = (lambda: build(**{attr: value}),), (lambda: build(**{attr: TWIN_IN_HALF}),)
    _planted(named, doc, op_name, attr, lambda self, a: in_half(a[attr]), witness, twin)


def _plant_taken(op_name: str, attr: str, source: str) -> None:
    build, value = _scenes(op_name, attr)
    named, doc = title(op_name, attr) + "From" + title(source), f"Reads `{source}` where the call's `{attr}` is meant."
    other = value * (0.5 if source == "dt_min" else 2)  # a lower limit stays below the upper one
    witness, twin = (lambda: build(**{attr: value, source: other}),), (lambda: build(**{attr: value, source: value}),)
    _planted(named, doc, op_name, attr, lambda self, a: a[attr] if a[source] is None else a[source], witness, twin)


for _, _op, _attr, _value, _ in CALLS:
    _plant_ignored(_op, _attr)
    if isinstance(_value, float):
        _plant_in_half(_op, _attr)
for _row in TAKEN:
    _plant_taken(*_row)
