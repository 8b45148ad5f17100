"""The uniform words of a dispatch: where tensors begin, how far their rows are apart, a kernel's own numbers."""

from __future__ import annotations

import struct
from typing import Any

from samebits.core.errors import Unsupported
from samebits.core.format import FORMATS
from samebits.kernels.wgsl.lib.launch import Binding, Dispatch, Operand, Tables

ONE_BY_ONE = ("elements", "fours", "singles")  # views whose x_row counts elements
WORD_BYTES = {"words": 4, "vec4": 16, "uniform": 16}
MAX_PARAM_BYTES = 256  # of a dispatch: offsets into uniform buffers are multiples of it everywhere


class Misaligned(Exception):
    """A tensor begins between two units of the view that a kernel has of it."""

    def __init__(self, shader: str, name: str, memory: Any) -> None:
        super().__init__(f"wgsl/{shader}: {name} starts inside a unit of its view")
        self.memory = memory


def tensors(dispatch: Dispatch) -> list[Binding]:
    """All bindings one by one, those of tables too."""
    found: list[Binding] = []
    for binding in dispatch.bindings:
        if isinstance(binding, Tables):
            found += [Binding(name, tensor) for name, tensor in binding.tensors.items()]
        else:
            found.append(binding)
    return found


def params_of(dispatch: Dispatch) -> list[tuple[str, int | float]]:
    """Names and values of the uniform words, those of a kernel's own after those of its bindings."""
    words: list[tuple[str, int | float]] = []
    for binding in tensors(dispatch):
        tensor = binding.tensor
        if isinstance(tensor, Operand):
            unit = _elements_per_unit(binding, tensor)
            if tensor.offset % unit:
                raise Misaligned(dispatch.shader, binding.name, tensor.buffer)
            words += [
                (f"{binding.name}_offset", tensor.offset // unit),
                (f"{binding.name}_stride", tensor.row_stride // unit),
            ]
            if binding.view == "planes":
                words.append((f"{binding.name}_scales", tensor.num_blocks * code_words(tensor.format)))
    return words + list(dispatch.params.items())


def packed_params(dispatch: Dispatch) -> bytes:
    """The words of a dispatch's uniform struct, the 0 of the rounding barrier first.

    Misaligned where a view does not fit its tensor.
    """
    values = [value for _, value in params_of(dispatch)]
    codes = "".join(["f" if isinstance(value, float) else "I" for value in values])
    if 4 * (1 + len(codes)) > MAX_PARAM_BYTES:
        raise Unsupported(f"wgsl/{dispatch.shader}: {len(codes)} parameters; devices get {MAX_PARAM_BYTES // 4 - 1}")
    return struct.pack(f"<I{codes}", 0, *values)


def code_words(block_format: str) -> int:
    """Words of a block's codes in a cache."""
    return {"q8_0": 8, "q4_0": 4}[block_format]


def _elements_per_unit(binding: Binding, tensor: Operand) -> int:
    """How many elements one step in the shader's array covers."""
    if binding.view in ONE_BY_ONE:
        return 1
    if binding.view == "planes":
        return FORMATS[tensor.format].block_len
    return WORD_BYTES[binding.view] // FORMATS[tensor.format].block_bytes
