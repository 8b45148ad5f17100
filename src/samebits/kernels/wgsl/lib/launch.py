"""What a kernel says: which shader runs over which tensors, with which numbers, on which grid.

A record's `run(call)` is asked once for every set of sizes that steps have, and returns dispatches; nothing runs yet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from samebits.core.errors import Unsupported

View = Literal["elements", "words", "vec4", "fours", "singles", "planes", "uniform", "stored"]
Access = Literal["read", "write"]
MAX_GROUPS = 65535  # along one axis of a grid, what every device grants


@dataclass(frozen=True)
class Operand:
    """A tensor as a kernel sees it, at one step's sizes. Elements of a row follow each other.

    buffer      device memory; opaque to kernels
    offset      elements before the first one
    row_stride  elements from one row of the first axis to the next
    num_blocks  of a cache in a block format: how many the whole memory holds; all codes, then a float32 scale each
    """

    format: str
    shape: tuple[int, ...]
    buffer: Any
    offset: int = 0
    row_stride: int = 1
    num_blocks: int = 0

    @property
    def num_rows(self) -> int:
        """Rows along all axes but the last."""
        count = 1
        for size in self.shape[:-1]:
            count *= size
        return count


@dataclass(frozen=True)
class Chunk:
    """Some rows of a packed weight, in a texture of four 32-bit words a texel."""

    first_row: int
    num_rows: int
    texture: Any  # a view of it; opaque to kernels


@dataclass(frozen=True)
class Weight:
    """A weight [N, K] that `prepack` rearranged."""

    format: str
    shape: tuple[int, ...]
    chunks: tuple[Chunk, ...]
    scale: float = 1.0


@dataclass(frozen=True)
class Binding:
    """A tensor, or a chunk of a weight, under a name in the shader. See compose.py for what a view declares."""

    name: str
    tensor: Operand | Chunk | None
    access: Access = "read"
    view: View = "elements"


@dataclass(frozen=True)
class Tables:
    """Small arrays of a step under one binding: integers and floats of 32 bits that the graph is given."""

    tensors: Mapping[str, Operand | None]


@dataclass(frozen=True)
class Dispatch:
    """One run of a shader.

    shader    its file under kernels/wgsl, without the ending
    bindings  in order; at most 8 storage buffers, Tables and the word of faults included
    consts    what a pipeline is compiled for: int (u32) or bool
    params    what may differ from run to run: int (u32) or float (f32)
    snippets  beside those that the shader's file names: one that is chosen by a format, say
    faults    name of a constant -> number of a reason, see faults.py; `refuse(NAME)` in the shader
    grid      workgroups along x, y, z; nothing runs where one is 0
    """

    shader: str
    bindings: tuple[Binding | Tables, ...]
    grid: tuple[int, int, int]
    consts: Mapping[str, int | bool] = field(default_factory=dict)
    params: Mapping[str, int | float] = field(default_factory=dict)
    snippets: tuple[str, ...] = ()
    faults: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Call:
    """One node at one step's sizes: what `run` reads."""

    inputs: Mapping[str, Operand | Weight]
    outputs: tuple[Operand, ...]
    attrs: Mapping[str, Any]
    scratch: Callable[[int], Operand]  # (words) -> memory of u32 that lasts until the node's last dispatch

    def tensor(self, name: str) -> Operand:
        """An input that is there and is no packed weight."""
        found = self.inputs[name]
        if isinstance(found, Weight):
            raise Unsupported(f"wgsl: {name} is packed")
        return found

    def optional(self, name: str) -> Operand | None:
        """An input that may be absent."""
        return self.tensor(name) if name in self.inputs else None

    def weight(self, name: str) -> Weight:
        """An input that `prepack` rearranged."""
        found = self.inputs[name]
        if isinstance(found, Operand):
            raise Unsupported(f"wgsl: {name} is not packed")
        return found


def ceil_div(count: int, size: int) -> int:
    """How many parts of `size` hold `count`."""
    return -(-count // size)


def linear(num_groups: int) -> tuple[int, int, int]:
    """A grid of at least so many workgroups in a row; `linear_group` in the shader numbers them."""
    height = ceil_div(num_groups, MAX_GROUPS)
    return (ceil_div(num_groups, height), height, 1) if num_groups else (0, 1, 1)
