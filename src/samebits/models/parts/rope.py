"""Rotations: what a file says of them, and the table of angles that a step reads."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from samebits.core.errors import BadInput
from samebits.core.format import HostTensor, Packed
from samebits.core.numerics.angles import natural_log
from samebits.loaders.fields import Fields, shown
from samebits.models.parts.keys import MAX_CONTEXT, Source
from samebits.ops.rope import rope_table

ROPE_TABLE = "rope_table"
KINDS = ("default", "linear", "llama3", "yarn", "longrope")
GGUF_KINDS = ("none", "linear", "yarn", "longrope")


@dataclass(frozen=True)
class Scaling:
    """How frequencies are changed for longer contexts. Only the fields of its kind mean anything.

    none      as they are
    linear    positions divided by `factor`
    llama3    `factor`, `low`, `high`, `original_len`
    factors   frequencies divided by the checkpoint's tensor "rope_freqs" [dims / 2]
    yarn      `factor`, `original_len`, `beta_fast`, `beta_slow`, `is_truncated`; the table times `magnitude`
    longrope  frequencies divided by `short` up to a context of `original_len`, by `long` beyond, which are factors or
              the names of tensors; the table times `magnitude`
    """

    kind: str = "none"
    factor: float = 1.0
    original_len: int = 0
    low: float = 1.0
    high: float = 4.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    is_truncated: bool = True
    magnitude: float = 1.0
    short: tuple[float, ...] | str = ()
    long: tuple[float, ...] | str = ()


PLAIN = Scaling()


@dataclass(frozen=True)
class Rope:
    """The rotation of the first `dims` elements of a head."""

    theta: float
    dims: int
    scaling: Scaling = PLAIN

    @property
    def switch_len(self) -> int | None:
        """The number of positions beyond which the table has other angles; None if the angles never depend on it."""
        return self.scaling.original_len if self.scaling.kind == "longrope" else None

    def table(self, num_positions: int, tensor: Callable[[str], HostTensor]) -> np.ndarray:
        """float32 [num_positions, dims / 2, 2] of (cos, sin); `tensor` gives one of the checkpoint's.

        Only longrope asks how many positions there are: a context beyond the original one has other angles from its
        first token on, so that no answer changes its rotation midway.
        """
        s = self.scaling
        if s.kind == "factors":
            return rope_table(num_positions, self.dims, theta=self.theta, divisors=_plain("rope_freqs", tensor))
        if s.kind == "longrope":
            factors = s.long if num_positions > s.original_len else s.short  # as `switch_len` says
            divisors = _plain(factors, tensor) if isinstance(factors, str) else np.array(factors, np.float64)
            return rope_table(num_positions, self.dims, theta=self.theta, divisors=divisors, magnitude=s.magnitude)
        scaling = {"none": "plain", "llama3": "llama31"}.get(s.kind, s.kind)
        return rope_table(
            num_positions,
            self.dims,
            theta=self.theta,
            scaling=scaling,
            factor=s.factor,
            low=s.low,
            high=s.high,
            old_context_len=s.original_len or 8192,
            betas=(s.beta_fast, s.beta_slow),
            is_truncated=s.is_truncated,
            magnitude=s.magnitude,
        )


def _plain(name: str, tensor: Callable[[str], HostTensor]) -> np.ndarray:
    divisors = tensor(name)
    if isinstance(divisors, Packed):
        raise BadInput("model", name, divisors.format.name, "a plain tensor")
    return divisors


def read_rope(
    source: Source, dims: int, context_len: int, parameters: Fields | None = None, usual_theta: float = 10000.0
) -> Rope:
    """The rotation of a model; `parameters`: the object of a config.json that describes it, where there are several;
    `usual_theta`: where it states none."""
    if source.is_gguf:
        theta = source.fields.number("rope.freq_base", 1.0, 1e12, 10000.0)
        return Rope(theta, dims, _gguf_scaling(source, context_len))
    fields = source.fields
    rope = parameters or fields.mapping("rope_parameters" if fields.has("rope_parameters") else "rope_scaling")
    theta = rope.number("rope_theta", 1.0, 1e12, fields.number("rope_theta", 1.0, 1e12, usual_theta))
    return Rope(theta, dims, _hf_scaling(rope, fields, dims, context_len))


def yarn_magnitude(factor: float, weight: float = 1.0) -> float:
    return 1.0 if factor <= 1 else 0.1 * weight * natural_log(factor) + 1.0


def longrope_magnitude(factor: float, original_len: int) -> float:
    if factor <= 1 or original_len < 2:
        return 1.0
    return math.sqrt(1 + natural_log(factor) / natural_log(original_len))


def _gguf_scaling(source: Source, context_len: int) -> Scaling:
    fields = source.fields
    kind = fields.text("rope.scaling.type", "linear" if fields.has("rope.scale_linear") else "none")
    if kind not in GGUF_KINDS:
        raise fields.fail("rope.scaling.type", repr(kind), "none, linear, yarn or longrope")
    if "rope_freqs.weight" in source.tensors:
        if kind != "none":
            raise fields.fail("rope.scaling.type", repr(kind), "none beside the tensor rope_freqs.weight")
        return Scaling("factors")
    factor = fields.number("rope.scaling.factor", 1e-3, 1e4, fields.number("rope.scale_linear", 1e-3, 1e4, 1.0))
    original = fields.integer("rope.scaling.original_context_length", 1, MAX_CONTEXT, context_len)
    magnitude = fields.number("rope.scaling.attn_factor", 1e-3, 1e6, None)
    if "rope_factors_long.weight" in source.tensors:
        magnitude = longrope_magnitude(context_len / original, original) if magnitude is None else magnitude
        short, long = "rope_factors.short", "rope_factors.long"  # tensors of the checkpoint
        return Scaling("longrope", original_len=original, magnitude=magnitude, short=short, long=long)
    if kind == "longrope":
        raise fields.fail("rope.scaling.type", repr(kind), "the tensors rope_factors_long and rope_factors_short")
    if kind == "none" or (kind == "linear" and factor == 1.0):
        return PLAIN
    if kind == "linear":
        return Scaling("linear", factor)
    return Scaling(
        "yarn",
        factor,
        original,
        beta_fast=fields.number("rope.scaling.yarn_beta_fast", 1e-3, 1e6, 32.0),
        beta_slow=fields.number("rope.scaling.yarn_beta_slow", 1e-3, 1e6, 1.0),
        magnitude=yarn_magnitude(factor) * (1.0 if magnitude is None else magnitude),
    )


def _hf_scaling(rope: Fields, fields: Fields, dims: int, context_len: int) -> Scaling:
    if nested := next((key for key, value in rope.values.items() if isinstance(value, dict)), None):
        raise rope.fail(nested, "an object", "one rotation for all layers")
    kind = rope.text("rope_type", rope.text("type", "default"))
    kind = "longrope" if kind == "su" else kind  # its first name
    if kind not in KINDS:
        raise rope.fail("rope_type", repr(kind), f"{', '.join(KINDS[:-1])} or {KINDS[-1]}")
    if kind == "default":
        return PLAIN
    stated = fields.integer("original_max_position_embeddings", 1, MAX_CONTEXT, None)
    original = rope.integer("original_max_position_embeddings", 1, MAX_CONTEXT, stated or context_len)
    if kind == "longrope":
        factor = rope.number("factor", 1e-3, 1e4, context_len / original)
        magnitude = rope.number("attention_factor", 1e-3, 1e6, longrope_magnitude(factor, original))
        short, long = (_factors(rope, key, dims) for key in ("short_factor", "long_factor"))
        return Scaling(kind, original_len=original, magnitude=magnitude, short=short, long=long)
    is_derived = kind == "yarn" and "factor" in rope.values  # and null
    factor = rope.number("factor", 1e-3, 1e4, *([context_len / original] if is_derived else []))
    if kind == "linear":
        return Scaling(kind, factor)
    if kind == "llama3":
        low = rope.number("low_freq_factor", 1e-3, 1e4)
        high = rope.number("high_freq_factor", 1e-3, 1e4)
        if high <= low:
            raise rope.fail("high_freq_factor", high, f"more than low_freq_factor, {low}")
        return Scaling(kind, factor, original, low, high)
    return Scaling(
        kind,
        factor,
        original,
        beta_fast=rope.number("beta_fast", 1e-3, 1e6, 32.0),
        beta_slow=rope.number("beta_slow", 1e-3, 1e6, 1.0),
        is_truncated=bool(rope.flag("truncate", True)),
        magnitude=rope.number("attention_factor", 1e-3, 1e6, _hf_yarn_magnitude(rope, factor)),
    )


def _hf_yarn_magnitude(rope: Fields, factor: float) -> float:
    """By the factor alone, or as the ratio of two weights of it."""
    if not (rope.has("mscale") and rope.has("mscale_all_dim")):
        return yarn_magnitude(factor)
    above, below = (yarn_magnitude(factor, rope.number(key, 1e-3, 1e3)) for key in ("mscale", "mscale_all_dim"))
    return above / below


def _factors(rope: Fields, key: str, dims: int) -> tuple[float, ...]:
    values = rope.get(key)
    is_list = isinstance(values, list) and len(values) == dims // 2
    if not is_list or any(type(v) not in (int, float) or not 1e-3 <= v <= 1e6 for v in values):
        raise rope.fail(key, shown(values), f"{dims // 2} numbers from 0.001 to 1e+06")
    return tuple(map(float, values))
