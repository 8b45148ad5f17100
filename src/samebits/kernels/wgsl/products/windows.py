"""Tokens in stretches whose activations fit into a uniform binding, and the tiles that invocations take of them.

A uniform binding holds 64 KiB on every device. Where not even one token fits, activations are read from a storage
buffer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from samebits.kernels.wgsl.lib.launch import Binding, Call, Dispatch, Operand, View, Weight, ceil_div, linear
from samebits.kernels.wgsl.products.packing import GROUP_ROWS

UNIFORM_BYTES = 64 << 10
GROUP = 32  # invocations
ROWS_BY_TILE = {1: 4, 4: 4, 8: 8}  # rows of an invocation, by its tokens: with many of them GPUs are busy anyway
TILES = tuple(ROWS_BY_TILE)  # tokens of an invocation


@dataclass(frozen=True)
class Window:
    """Some tokens, with memory for their activations as products read them."""

    first_token: int
    num_tokens: int
    tile: int
    memory: Operand
    is_uniform: bool

    def binding(self) -> Binding:
        """The activations as a product reads them: x, an array of vec4<u32>."""
        return Binding("x", self.memory, view="uniform" if self.is_uniform else "vec4")


def windows(call: Call, num_tokens: int, token_words: int) -> Iterator[Window]:
    """All tokens of a call, `token_words` for each."""
    fitting = UNIFORM_BYTES // (4 * token_words)
    wanted = next((tile for tile in TILES if tile >= num_tokens), TILES[-1])
    tile = next((t for t in reversed(TILES) if t <= min(wanted, fitting)), 1)
    length = fitting // tile * tile or num_tokens
    for first in range(0, num_tokens, length):
        held = length if fitting else ceil_div(num_tokens, tile) * tile
        num_words = UNIFORM_BYTES // 4 if fitting else held * token_words  # one size of all: shaders know it
        whole = Operand("u32", (num_words,), call.scratch(num_words).buffer)
        yield Window(first, min(length, num_tokens - first), tile, whole, bool(fitting))


def preparation(
    shader: str,
    window: Window,
    inputs: tuple[Binding, ...],
    into: str,
    per_token: int,
    consts: Mapping[str, int | bool],
    params: Mapping[str, int],
    snippets: tuple[str, ...] = (),
    faults: Mapping[str, int] | None = None,
) -> Dispatch:
    """What brings activations into a window, `per_token` invocations for each token."""
    return Dispatch(
        f"products/{shader}",
        (*inputs, Binding(into, window.memory, "write", "vec4")),
        linear(ceil_div(window.num_tokens * per_token, GROUP)),
        consts={"GROUP": GROUP, **consts},
        params={"first_token": window.first_token, "num_tokens": window.num_tokens, **params},
        snippets=snippets,
        faults=faults or {},
    )


def products(
    shader: str,
    window: Window,
    weight: Weight,
    bias: Operand | None,
    y: Operand,
    consts: Mapping[str, int | bool],
    params: Mapping[str, int],
    snippets: tuple[str, ...],
    group: int = GROUP,
) -> list[Dispatch]:
    """The product of a window with every chunk of a weight, in workgroups of `group` invocations."""
    found = []
    # software drivers read one by one faster from storage textures, and many at once slower
    view: View = "stored" if window.tile == 1 else "elements"
    rows = ROWS_BY_TILE[window.tile]
    lanes = GROUP_ROWS // rows  # invocations that share a group of rows
    for chunk in weight.chunks:
        row_groups = ceil_div(chunk.num_rows, GROUP_ROWS)
        found.append(
            Dispatch(
                f"products/{shader}",
                (
                    window.binding(),
                    Binding("weight", chunk, view=view),
                    Binding("bias", bias),
                    Binding("y", y, "write"),
                ),
                (ceil_div(row_groups * lanes, group), ceil_div(window.num_tokens, window.tile), 1),
                consts={"GROUP": group, "ROWS": rows, "LANES": lanes, "TOKENS": window.tile, **consts},
                params={
                    "row_groups": row_groups,
                    "first_row": chunk.first_row,
                    "num_rows": chunk.num_rows,
                    "first_token": window.first_token,
                    "num_tokens": window.num_tokens,
                    **params,
                },
                snippets=snippets,
            )
        )
    return found
