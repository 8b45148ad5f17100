"""The sizes of layers that keep a state in place of keys and values, as their architectures read them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from samebits.core.errors import BadInput
from samebits.ops.ssm import NO_LIMIT


@dataclass(frozen=True)
class DeltaNet:
    """Gated delta nets.

    num_taps   of the convolution over time
    is_tiled   value head h belongs to key head h % num_key_heads, else to h // (num_value_heads / num_key_heads)
    """

    num_key_heads: int
    num_value_heads: int
    key_size: int
    value_size: int
    num_taps: int
    is_tiled: bool = False

    def dims(self) -> dict[str, int]:
        keys, values = self.num_key_heads * self.key_size, self.num_value_heads * self.value_size
        return {
            "Keys": keys,
            "Values": values,
            "Channels": 2 * keys + values,
            "Taps": self.num_taps,
            "Heads": self.num_value_heads,
            "KeyHeads": self.num_key_heads,
            "KeySize": self.key_size,
            "ValueSize": self.value_size,
            "HeadsEach": self.num_value_heads // self.num_key_heads,
        }


@dataclass(frozen=True)
class Ssm:
    """Mamba-2's state spaces.

    has_norm        what a layer gives is normed, else gated alone
    is_gated_first  the norm follows the gate, else the gate the norm
    dt_min, dt_max  bounds of a step of time
    """

    num_heads: int
    head_size: int
    state_size: int
    num_groups: int
    num_taps: int
    has_conv_bias: bool = True
    has_norm: bool = True
    is_gated_first: bool = True
    dt_min: float = 0.0
    dt_max: float = NO_LIMIT

    @property
    def inner_size(self) -> int:
        return self.num_heads * self.head_size

    @property
    def num_channels(self) -> int:
        """Of the convolution: x, B and C."""
        return self.inner_size + 2 * self.num_groups * self.state_size

    def dims(self) -> dict[str, int]:
        return {
            "Inner": self.inner_size,
            "Channels": self.num_channels,
            "Projected": self.inner_size + self.num_channels + self.num_heads,
            "Taps": self.num_taps,
            "Heads": self.num_heads,
            "Groups": self.num_groups,
            "GroupSize": self.inner_size // self.num_groups,
        }


@dataclass(frozen=True)
class ShortConv:
    """A gated convolution over so many positions."""

    num_taps: int

    def dims(self) -> dict[str, int]:
        return {"Taps": self.num_taps}


Recurrence = DeltaNet | Ssm | ShortConv
Kind = TypeVar("Kind", DeltaNet, Ssm, ShortConv)


def sizes_of(given: Recurrence | None, kind: type[Kind]) -> Kind:
    """What a layer of this kind reads of its model's configuration."""
    if not isinstance(given, kind):
        raise BadInput("model", "recurrence", type(given).__name__, kind.__name__)
    return given
