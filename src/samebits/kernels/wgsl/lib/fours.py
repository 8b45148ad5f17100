"""The views `fours` and `singles`: float rows read and written four elements at a time, in `fours` by one vec4 where
all rows are aligned.

i is what x_row gave plus an element's place, a multiple of 4 within its row; `left` is how many elements the row has
from there on, 1 or more.
"""

from __future__ import annotations

from samebits.kernels.wgsl.lib.launch import Operand

_READ_VECTOR = "fn {x}_four(i: u32, left: u32) -> vec4<f32> {{ return bitcast<vec4<f32>>({x}[i >> 2u]); }}\n"
_READ_SINGLE = """fn {x}_four(i: u32, left: u32) -> vec4<f32> {{
    var v = vec4({x}_at(i), 0.0, 0.0, 0.0);
    if (left > 1u) {{ v.y = {x}_at(i + 1u); }}
    if (left > 2u) {{ v.z = {x}_at(i + 2u); }}
    if (left > 3u) {{ v.w = {x}_at(i + 3u); }}
    return v;
}}
"""
_WRITE_VECTOR = "fn {x}_put(i: u32, left: u32, v: vec4<f32>) {{ {x}[i >> 2u] = bitcast<vec4<u32>>(v); }}\n"
_WRITE_SINGLE = """fn {x}_put(i: u32, left: u32, v: vec4<f32>) {{
    {x}[i] = v.x;
    if (left > 1u) {{ {x}[i + 1u] = v.y; }}
    if (left > 2u) {{ {x}[i + 2u] = v.z; }}
    if (left > 3u) {{ {x}[i + 3u] = v.w; }}
}}
"""
_ABSENT = """fn {x}_four(i: u32, left: u32) -> vec4<f32> {{ return vec4(0.0); }}
fn {x}_put(i: u32, left: u32, v: vec4<f32>) {{}}
"""


def in_vectors(tensor: Operand) -> bool:
    """Whether every fourth element of every row begins a vec4. Strides of one row alone do not matter."""
    stride = tensor.row_stride if len(tensor.shape) > 1 else 0
    return tensor.format == "f32" and not (tensor.offset % 4 or stride % 4 or tensor.shape[-1] % 4)


def four_functions(name: str, tensor: Operand | None, is_vector: bool, is_written: bool) -> str:
    """x_four, and x_put of a written binding; an absent tensor gives 0 and takes nothing."""
    if tensor is None:
        return _ABSENT.format(x=name)
    read = (_READ_VECTOR if is_vector else _READ_SINGLE).format(x=name)
    write = (_WRITE_VECTOR if is_vector else _WRITE_SINGLE).format(x=name)
    return read + write if is_written else read
