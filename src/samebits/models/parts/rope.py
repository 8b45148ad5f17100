"""Rotations: what a file says of them, and the table of angles that a step reads."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

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


@dataclass(frozen=True)
class HfRotation:
    """Rules by which transformers reads the rotation of an architecture from its config.json.

    theta         where none is stated
    parameters    the value of `rope_parameters` where that is absent
    original_len  `original_max_position_embeddings` where the file has none beside the rotation; None: the rotation's
                  own, or the length of the context
    kinds         our kinds by the names that a file may give
    """

    theta: float = 10000.0
    parameters: Mapping[str, Any] = field(default_factory=dict)
    original_len: int | None = None
    kinds: Mapping[str, str] = field(default_factory=lambda: {kind: kind for kind in KINDS})


USUAL = HfRotation()


def read_rope(source: Source, dims: int, context_len: int, hf: HfRotation = USUAL) -> Rope:
    """Return the rotation that all layers share. Raise BadInput for one that is not supported.

    A config.json states it in `rope_parameters`, in the older `rope_scaling` or in both, and partly beside them.
    """
    if source.is_gguf:
        theta = source.fields.number("rope.freq_base", 1.0, 1e12, 10000.0)
        return Rope(theta, dims, _gguf_scaling(source, context_len))
    fields = source.fields
    rope = stated_rotation(fields, hf.parameters)
    theta = rope.number("rope_theta", 1.0, 1e12, fields.number("rope_theta", 1.0, 1e12, hf.theta))
    check_kept(fields, rope, "rope_theta", theta)
    original = fields.integer("original_max_position_embeddings", 1, MAX_CONTEXT, hf.original_len)
    return Rope(theta, dims, _hf_scaling(rope, dims, context_len, original, hf.kinds))


def read_layer_rope(rope: Fields, dims: int, context_len: int, theta: float) -> Rope:
    """Return the rotation of some layers, of which alone the object `rope` of a config.json speaks; `theta`: where it
    states none."""
    if (share := rope.number("partial_rotary_factor", 0.0, 1.0, 1.0)) != 1:
        raise rope.fail("partial_rotary_factor", share, "1: this architecture rotates whole heads")
    scaling = _hf_scaling(rope, dims, context_len, None, USUAL.kinds)
    if not scaling.is_truncated:
        raise rope.fail("truncate", "false", "true: transformers reads this key for all layers at once")
    return Rope(rope.number("rope_theta", 1.0, 1e12, theta), dims, scaling)


def stated_rotation(fields: Fields, usual: Mapping[str, Any] | None = None) -> Fields:
    """Return the object of a config.json that describes the rotation of all layers, as transformers chooses it.

    `rope_scaling` replaces `rope_parameters` unless it is empty; `usual` stands for an absent `rope_parameters`.
    """
    older, newer = fields.mapping("rope_scaling"), fields.mapping("rope_parameters")
    if older.values:
        return older
    return newer if fields.has("rope_parameters") or not usual else Fields(usual, fields.where)


def check_kept(fields: Fields, rope: Fields, key: str, value: float) -> None:
    """Raise BadInput if `rope_parameters` states another value than the one read, and `rope` states none.

    transformers drops the base of a model to which somebody has added YaRN as a `rope_scaling` without a base: its
    answers are then those of no model that was trained.
    """
    stated = fields.mapping("rope_parameters").get(key)
    if stated is not None and stated != value and not rope.has(key):
        raise rope.fail(key, "nothing", f"{shown(stated)} as in rope_parameters, which rope_scaling replaces")


def yarn_magnitude(factor: float, weight: float = 1.0) -> float:
    return 1.0 if factor <= 1 else 0.1 * weight * natural_log(factor) + 1.0


def longrope_magnitude(factor: float, original_len: int) -> float:
    if factor <= 1 or original_len < 2:
        return 1.0
    return math.sqrt(1 + natural_log(factor) / natural_log(original_len))


def _gguf_scaling(source: Source, context_len: int) -> Scaling:
    """Return the scaling of a GGUF file. A factor without a kind is a linear one, as in llama.cpp."""
    fields = source.fields
    kind = fields.text("rope.scaling.type", "linear")
    if kind not in GGUF_KINDS:
        raise fields.fail("rope.scaling.type", repr(kind), "none, linear, yarn or longrope")
    older = fields.number("rope.scale_linear", 0.0, 1e4, 1.0)
    factor = fields.number("rope.scaling.factor", 0.0, 1e4, older) or 1.0  # llama.cpp takes a 0 for nothing
    _check_yarn_factors(fields, kind)
    if kind == "linear" and factor == 1:
        kind = "none"
    if "rope_freqs.weight" in source.tensors:
        if kind != "none":
            raise fields.fail("rope.scaling.type", repr(kind), "none beside the tensor rope_freqs.weight")
        return Scaling("factors")
    original = fields.integer("rope.scaling.original_context_length", 1, MAX_CONTEXT, context_len)
    magnitude = fields.number("rope.scaling.attn_factor", 1e-3, 1e6, None)
    if "rope_factors_long.weight" in source.tensors:
        if kind in ("linear", "yarn") or (kind == "longrope" and factor != 1):
            raise fields.fail("rope.scaling.factor", factor, "1 beside the tensor rope_factors_long.weight")
        magnitude = longrope_magnitude(context_len / original, original) if magnitude is None else magnitude
        short, long = "rope_factors.short", "rope_factors.long"  # tensors of the checkpoint
        return Scaling("longrope", original_len=original, magnitude=magnitude, short=short, long=long)
    if kind == "longrope":
        raise fields.fail("rope.scaling.type", repr(kind), "the tensors rope_factors_long and rope_factors_short")
    if kind == "none":
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


def _check_yarn_factors(fields: Fields, kind: str) -> None:
    """Raise BadInput for factors of a GGUF file that change YaRN, or another kind of scaling into it."""
    usual = 1.0 if kind == "yarn" else 0.0
    extrapolation = fields.number("rope.scaling.yarn_ext_factor", -1e6, 1e6, usual)
    if extrapolation >= 0 and extrapolation != usual:  # llama.cpp takes a negative number for nothing
        raise fields.fail("rope.scaling.yarn_ext_factor", extrapolation, f"{usual:g}: no other factor is supported")
    attention = fields.number("rope.scaling.yarn_attn_factor", -1e6, 1e6, 1.0)
    if attention != 1:
        raise fields.fail("rope.scaling.yarn_attn_factor", attention, "1: no other factor is supported")


def _hf_scaling(rope: Fields, dims: int, context_len: int, original: int | None, kinds: Mapping[str, str]) -> Scaling:
    """Return the scaling that an object of a config.json describes; `original`: the length of the first context if the
    file states it outside, which goes before the object's own."""
    if nested := next((key for key, value in rope.values.items() if isinstance(value, dict)), None):
        raise rope.fail(nested, "an object", "one rotation for all layers")
    stated = rope.text("rope_type", rope.text("type", "default"))
    kind = kinds.get(stated)
    if kind is None:
        *most, last = kinds
        raise rope.fail("rope_type", repr(stated), f"{', '.join(most)} or {last}")
    if kind == "default":
        return PLAIN
    own = rope.integer("original_max_position_embeddings", 1, MAX_CONTEXT, context_len)
    original = own if original is None else original
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
        beta_fast=rope.number("beta_fast", 0.0, 1e6, 32.0) or 32.0,  # transformers takes a 0 for nothing
        beta_slow=rope.number("beta_slow", 0.0, 1e6, 1.0) or 1.0,
        is_truncated=bool(rope.flag("truncate", "truncate" not in rope.values)),  # transformers takes a null for false
        magnitude=rope.number("attention_factor", 1e-3, 1e6, _hf_yarn_magnitude(rope, factor)),
    )


def _hf_yarn_magnitude(rope: Fields, factor: float) -> float:
    """Return the magnitude by the factor alone, or as the ratio of two weights of it where neither is 0 or absent."""
    above, below = (rope.number(key, 0.0, 1e3, 0.0) for key in ("mscale", "mscale_all_dim"))
    if not (above and below):
        return yarn_magnitude(factor)
    return yarn_magnitude(factor, above) / yarn_magnitude(factor, below)


def _factors(rope: Fields, key: str, dims: int) -> tuple[float, ...]:
    values = rope.get(key)
    is_list = isinstance(values, list) and len(values) == dims // 2
    if not is_list or any(type(v) not in (int, float) or not 1e-3 <= v <= 1e6 for v in values):
        raise rope.fail(key, shown(values), f"{dims // 2} numbers from 0.001 to 1e+06")
    return tuple(map(float, values))
