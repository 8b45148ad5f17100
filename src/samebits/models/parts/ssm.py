"""Mamba-2's layer: one projection, a convolution, a scan over time, a gated norm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from samebits.graph import Value
from samebits.loaders.fields import shown
from samebits.models.architecture import Weight
from samebits.models.parts.builder import ModelParts
from samebits.models.parts.conv import causal_conv
from samebits.models.parts.keys import MAX_HEAD_SIZE, MAX_HEADS, MAX_TAPS, MAX_WIDTH, Key, Source, whole
from samebits.models.parts.recurrence import Ssm, sizes_of
from samebits.models.parts.state import Slot
from samebits.ops.slots import CHUNK
from samebits.ops.ssm import NO_LIMIT

GGUF_KEYS = {
    "num_heads":    whole("ssm.time_step_rank", None, 1, MAX_HEADS),
    "inner_size":   whole("ssm.inner_size",     None, 1, MAX_WIDTH),
    "state_size":   whole("ssm.state_size",     None, 1, MAX_HEAD_SIZE),
    "num_groups":   whole("ssm.group_count",    None, 1, MAX_HEADS),
    "num_taps":     whole("ssm.conv_kernel",    None, 2, MAX_TAPS),
}  # fmt: skip


def tensors(hf: str) -> tuple[Weight, ...]:
    """Those of a layer, which Hugging Face names behind `hf`."""
    #          ours          shape            GGUF               Hugging Face
    return (
        Weight("ssm.in",        "Projected H",   "ssm_in",          f"{hf}.in_proj"),
        Weight("ssm.taps",      "Channels Taps", "ssm_conv1d",      f"{hf}.conv1d", is_f32=True,
               hf_shape="Channels 1 Taps"),
        Weight("ssm.taps_bias", "Channels",      "ssm_conv1d.bias", f"{hf}.conv1d.bias", is_f32=True,
               when="has_conv_bias"),
        Weight("ssm.decay",     "Heads",         "ssm_a",           f"{hf}.A_log", is_f32=True, bare="both",
               gguf_shape="Heads 1", hf_is_log=True),
        Weight("ssm.dt_bias",   "Heads",         "ssm_dt.bias",     f"{hf}.dt_bias", is_f32=True, bare="both"),
        Weight("ssm.d",         "Heads",         "ssm_d",           f"{hf}.D", is_f32=True, bare="both",
               gguf_shape="Heads 1"),
        Weight("ssm.norm",      "Inner",         "ssm_norm",        f"{hf}.norm", when="has_ssm_norm",
               gguf_shape="Groups GroupSize"),
        Weight("ssm.out",       "H Inner",       "ssm_out",         f"{hf}.out_proj"),
    )  # fmt: skip


def read_ssm(source: Source, keys: Mapping[str, Key], conv_bias: str, **given: Any) -> Ssm:
    """The sizes of a GGUF file, or by the `keys` of a config.json, named as the fields of `Ssm`; or `inner_size` of all
    heads in place of the `head_size`. `conv_bias`: the flag of a config.json for it."""
    values = source.values(GGUF_KEYS if source.is_gguf else keys)
    num_heads, num_groups, inner_size = values["num_heads"], values["num_groups"], values.pop("inner_size", None)
    if inner_size is not None:
        if inner_size % num_heads:
            raise source.fail("width of a state space", inner_size, f"a multiple of the {num_heads} heads")
        values["head_size"] = inner_size // num_heads
    if num_heads % num_groups:
        raise source.fail("groups of a state space", num_groups, f"a divisor of the {num_heads} heads")
    has_bias = source.has_tensor(".ssm_conv1d.bias") if source.is_gguf else source.flag(conv_bias, True)
    return Ssm(**values, has_conv_bias=has_bias, **given)


def time_step_limits(source: Source, key: str = "time_step_limit") -> dict[str, float]:
    """The bounds of a step of time that a config.json states; GGUF stores none."""
    value = None if source.is_gguf else source.fields.get(key)
    if value is None:
        return {}
    bounds = [_bound(item) for item in value] if isinstance(value, list) else []
    if len(bounds) != 2 or not 0 <= bounds[0] <= bounds[1]:
        raise source.fields.fail(key, shown(value), "two numbers, neither negative, the larger last")
    return {"dt_min": bounds[0], "dt_max": bounds[1]}


def _bound(item: object) -> float:
    """A number; transformers writes infinity as an object. Anything else is no number, and fails every comparison."""
    if item == {"__float__": "Infinity"}:
        return NO_LIMIT
    return min(float(item), NO_LIMIT) if isinstance(item, int | float) and not isinstance(item, bool) else float("nan")


def ssm(m: ModelParts, x: Value, layer: int) -> Value:
    """One layer."""
    b, c, name = m.b, sizes_of(m.config.recurrence, Ssm), f"layers.{layer}.ssm"
    gate, channels, dt = _projected(m, m.linear(x, f"{name}.in"))
    y = _scan(m, causal_conv(m, channels, name, "silu"), dt, name)
    if c.has_norm:
        more = {"eps": m.config.rms_eps, "gate_first": c.is_gated_first, "groups": c.num_groups}
        y = b.gated_rms_norm(y, gate, m.weight(f"{name}.norm"), **more)
    else:
        y = b.silu_and_mul(b.concat_columns(gate, y))
    return m.linear(y, f"{name}.out")


def _projected(m: ModelParts, joined: Value) -> tuple[Value, Value, Value]:
    """The gate, what enters the convolution (x, B and C), and the step of time, each times its factor."""
    b, c = m.b, sizes_of(m.config.recurrence, Ssm)
    states, end = c.num_groups * c.state_size, c.inner_size + c.num_channels
    gate = m.scaled(b.slice_columns(joined, start=0, stop=c.inner_size), "ssm.gate")
    dt = m.scaled(b.slice_columns(joined, start=end, stop=end + c.num_heads), "ssm.dt")
    if not {"ssm.x", "ssm.b", "ssm.c"} & m.config.factors.keys():
        return gate, b.slice_columns(joined, start=c.inner_size, stop=end), dt
    start, parts = c.inner_size, []
    for factor, width in (("ssm.x", c.inner_size), ("ssm.b", states), ("ssm.c", states)):
        parts.append(m.scaled(b.slice_columns(joined, start=start, stop=start + width), factor))
        start += width
    return gate, b.concat_columns(b.concat_columns(parts[0], parts[1]), parts[2]), dt


def _scan(m: ModelParts, mixed: Value, dt: Value, name: str) -> Value:
    """x, B and C side by side through time; heads side by side again."""
    b, c = m.b, sizes_of(m.config.recurrence, Ssm)
    states, inner = c.num_groups * c.state_size, c.inner_size
    x = b.split_heads(b.slice_columns(mixed, start=0, stop=inner), heads=c.num_heads)
    write, read = (
        b.split_heads(b.slice_columns(mixed, start=at, stop=at + states), heads=c.num_groups)
        for at in (inner, inner + states)
    )
    state = m.state(f"{name}.state", Slot((c.num_heads, c.state_size, c.head_size), is_resumable=True))
    ring = m.state(f"{name}.ring", Slot((CHUNK, states + inner + c.num_heads), is_resumable=False))
    y, state, ring = b.ssm_scan(
        x,
        dt,
        write,
        read,
        decay=m.weight(f"{name}.decay"),
        dt_bias=m.weight(f"{name}.dt_bias"),
        D=m.weight(f"{name}.d"),
        state=state,
        ring=ring,
        dt_min=c.dt_min,
        dt_max=c.dt_max,
        **m.sequences(),
    )
    m.written(state, ring)
    return b.merge_heads(y)
