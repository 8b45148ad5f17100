"""Feed-forward parts without a gate, whose activation is the square of a relu."""

from __future__ import annotations

from samebits.graph import Value
from samebits.models.parts.builder import ModelParts

TO_STEP = 2.0**60  # times any number but 0, which is 2^-50 at least, far beyond where a sigmoid is 0 or 1


def squared_relu(m: ModelParts, x: Value) -> Value:
    """relu(x)^2; a relu is the number times a sigmoid that is 0 or 1."""
    relu = m.b.sigmoid_and_mul(x, m.b.scale(x, factor=TO_STEP))
    return m.b.mul(relu, relu)


def squared_ffn(m: ModelParts, x: Value, layer: int, part: str = "ffn") -> Value:
    """down(relu(up(x))^2), of the layer's tensors below `part`."""
    name = f"layers.{layer}.{part}"
    return m.linear(squared_relu(m, m.linear(x, f"{name}.up")), f"{name}.down")
