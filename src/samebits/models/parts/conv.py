"""Convolutions over time: the one before a recurrence, and LFM2's gated one, which is a layer of its own."""

from __future__ import annotations

from samebits.core.shapes import upper
from samebits.graph import Value
from samebits.models.architecture import Weight
from samebits.models.parts.builder import ModelParts
from samebits.models.parts.state import Slot

#                   ours        shape      GGUF                  Hugging Face
SHORT_CONV = (
    Weight("conv.in",       "3*H H",   "shortconv.in_proj",  "conv.in_proj"),
    Weight("conv.taps",     "H Taps",  "shortconv.conv",     "conv.conv",     is_f32=True, hf_shape="H 1 Taps"),
    Weight("conv.out",      "H H",     "shortconv.out_proj", "conv.out_proj"),
)  # fmt: skip


def causal_conv(m: ModelParts, x: Value, name: str, activation: str) -> Value:
    """Each channel over its last values: tensors `name`.taps and, where there is one, `name`.taps_bias."""
    num_channels, num_taps = (upper(size) for size in m.weight(f"{name}.taps").spec.shape)
    carry = m.state(f"{name}.carry", Slot((2, num_taps - 1, num_channels), is_resumable=True))
    bias = m.weight(f"{name}.taps_bias") if m.has(f"{name}.taps_bias") else None
    y, carry = m.b.causal_conv(
        x, m.weight(f"{name}.taps"), carry=carry, bias=bias, activation=activation, **m.sequences()
    )
    m.written(carry)
    return y


def short_conv(m: ModelParts, x: Value, layer: int) -> Value:
    """out(c * conv(b * v)), b, c and v side by side in the projection."""
    b, name, width = m.b, f"layers.{layer}.conv", m.config.hidden_size
    projected = m.linear(x, f"{name}.in")
    before, after, value = (b.slice_columns(projected, start=i * width, stop=(i + 1) * width) for i in range(3))
    y = causal_conv(m, b.mul(before, value), name, "none")
    return m.linear(b.mul(after, y), f"{name}.out")
