"""The text of a shader: constants, parameters, bindings and their accessors, the snippets it needs, its body.

A file states the snippets it needs in lines `//: needs a, b`; they come in once, each after those it needs itself.
Lines from `//: each r < ROWS` to `//: end` are written out: unroll.py.

What a binding `x` declares:

view       array              functions; t counts rows of the first axis, i is what x_row gave plus an element's place
elements   x, by format       x_row(t) -> u32; x_at(i) -> f32, i32 or u32: one element, widened exactly
words      x: array<u32>      x_row(t) -> u32, in words
vec4       x: array<vec4<u32>> x_row(t) -> u32, in vec4
fours      x                  x_row(t) -> u32; x_four(i, left) -> vec4<f32>, x_put(i, left, v) where written: fours.py
singles    x                  as fours, for a kernel that stops inside a vec4
uniform    x: array<vec4<u32>, n>  x_row(t) -> u32, in vec4; at most 64 KiB, from a buffer's start on
planes     x: array<u32>      x_row(t) -> u32, in blocks; P.x_scales: the word where float32 scales begin

A written binding of a 32-bit format is x: array<f32> or array<i32>, so x[x_row(t) + c] = value. An absent input has the
same functions, which give 0, and every binding has a constant HAS_X. A chunk of a weight has
x_texel(at) -> vec4<u32>, from a sampled texture, or from a storage texture in the view `stored`.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable
from functools import cache
from importlib.resources import files
from math import prod
from typing import Any

from samebits.core.format import FORMATS
from samebits.kernels.wgsl.lib.faults import word_of
from samebits.kernels.wgsl.lib.fours import four_functions, in_vectors
from samebits.kernels.wgsl.lib.launch import Binding, Chunk, Dispatch, Operand, Tables
from samebits.kernels.wgsl.lib.params import ONE_BY_ONE, params_of, tensors
from samebits.kernels.wgsl.lib.unroll import unrolled

ROOT = files("samebits.kernels.wgsl")
NEEDS = re.compile(r"^//: needs (.+)$", re.MULTILINE)
ALWAYS = ("rounding",)
DIRECT = {"f32": "f32", "i32": "i32", "u32": "u32"}  # formats that a shader's array holds as they are
NARROW = {"f16": "float16", "bf16": "bfloat16"}  # 16 bits each, and the snippet that widens them


@cache
def source(name: str) -> str:
    """The text of a file under kernels/wgsl, by its name without the ending."""
    return ROOT.joinpath(f"{name}.wgsl").read_text(encoding="utf-8")


def needed_by(text: str) -> list[str]:
    """The snippets that a text names."""
    return [name.strip() for line in NEEDS.findall(text) for name in line.split(",")]


def in_order(names: Iterable[str]) -> list[str]:
    """The snippets and all that they need, each once, after what it needs itself."""
    found: list[str] = []

    def add(name: str) -> None:
        if name not in found:
            for other in needed_by(source(f"snippets/{name}")):
                add(other)
            found.append(name)

    for name in names:
        add(name)
    return found


def signature(dispatch: Dispatch) -> Hashable:
    """Equal for dispatches whose shaders have the same text; cheap beside making that."""
    bindings: list[Hashable] = []
    for binding in dispatch.bindings:
        if isinstance(binding, Tables):
            given = binding.tensors.items()
            bindings.append(tuple([(name, t and (t.format, _array_of(binding, t))) for name, t in given]))
        else:
            tensor = binding.tensor
            kind = tensor.format if isinstance(tensor, Operand) else tensor is None
            size = tensor.shape if binding.view == "uniform" and isinstance(tensor, Operand) else ()
            bindings.append((binding.name, binding.access, binding.view, kind, _is_vector(binding), size))
    return (
        dispatch.shader,
        tuple(bindings),
        tuple([(name, value, type(value)) for name, value in dispatch.consts.items()]),
        tuple([(name, isinstance(value, float)) for name, value in dispatch.params.items()]),
        tuple(dispatch.faults.items()),
        dispatch.snippets,
    )


def shader_text(dispatch: Dispatch) -> str:
    """The whole shader."""
    body = source(dispatch.shader)
    bindings = tensors(dispatch)
    widening = {snippet for b in bindings if (snippet := _widening(b))}
    snippets = in_order((*ALWAYS, *sorted(widening), *dispatch.snippets, *needed_by(body)))
    parts = [
        *(_const(name, value) for name, value in {**dispatch.consts, **dispatch.faults}.items()),
        *(f"const HAS_{b.name.upper()} = {'true' if b.tensor is not None else 'false'};" for b in bindings),
        "struct Params {",
        "    zero: u32,",
        *(f"    {name}: {'f32' if isinstance(value, float) else 'u32'}," for name, value in params_of(dispatch)),
        "}",
        "@group(0) @binding(0) var<uniform> P: Params;",
        *_declarations(dispatch),
        *_functions(dispatch),
        *(source(f"snippets/{name}") for name in snippets),
        body,
    ]
    return unrolled(NEEDS.sub("", "\n".join(parts)), dispatch.consts)


def _const(name: str, value: int | bool) -> str:
    if isinstance(value, bool):
        return f"const {name} = {'true' if value else 'false'};"
    return f"const {name} = {value}u;"


def _buffers(tables: Tables) -> list[Any]:
    """Of some small arrays: one, but for those that a node computed or that have memory of their own."""
    found: list[Any] = []
    for tensor in tables.tensors.values():
        if tensor is not None and not any(tensor.buffer is buffer for buffer in found):
            found.append(tensor.buffer)
    return found


def _array_of(tables: Tables, tensor: Operand) -> str:
    """The name of the array that a small array is part of."""
    number = next(n for n, buffer in enumerate(_buffers(tables)) if buffer is tensor.buffer)
    return f"tables_{number}" if number else "tables"


def memories(dispatch: Dispatch) -> list[tuple[Any, str, int]]:
    """(memory, access, bytes) of every binding, in the order of their numbers from 1; 0 bytes stand for all there are.

    access   read or write of a buffer in storage; uniform; texture or stored, a storage texture
    """
    found: list[tuple[Any, str, int]] = []
    for binding in dispatch.bindings:
        if isinstance(binding, Tables):
            found += [(buffer, "read", 0) for buffer in _buffers(binding)]
        elif isinstance(binding.tensor, Chunk):
            found.append((binding.tensor.texture, "stored" if binding.view == "stored" else "texture", 0))
        elif binding.tensor is not None and binding.view == "uniform":
            found.append((binding.tensor.buffer, "uniform", 16 * _uniform_length(binding.tensor)))
        elif binding.tensor is not None:
            found.append((binding.tensor.buffer, binding.access, 0))
    return found


def _uniform_length(tensor: Operand) -> int:
    """vec4 of a uniform binding."""
    return prod(tensor.shape) * FORMATS[tensor.format].block_bytes // 16


def _widening(binding: Binding) -> str | None:
    """The snippet that widens a binding's elements, where they have 16 bits."""
    tensor = binding.tensor
    return NARROW.get(tensor.format) if isinstance(tensor, Operand) and binding.view in ONE_BY_ONE else None


def _array_type(binding: Binding) -> str:
    if binding.view == "vec4" or _is_vector(binding):
        return "vec4<u32>"
    if isinstance(binding.tensor, Operand) and binding.view in ONE_BY_ONE:
        return DIRECT.get(binding.tensor.format, "u32")
    return "u32"


def _is_vector(binding: Binding) -> bool:
    return binding.view == "fours" and isinstance(binding.tensor, Operand) and in_vectors(binding.tensor)


def _declarations(dispatch: Dispatch) -> list[str]:
    lines, number = [], 0
    for binding in dispatch.bindings:
        if isinstance(binding, Tables):
            for name in dict.fromkeys(_array_of(binding, t) for t in binding.tensors.values() if t is not None):
                number += 1
                lines.append(f"@group(0) @binding({number}) var<storage, read> {name}: array<u32>;")
        elif binding.tensor is not None:
            number += 1
            lines.append(f"@group(0) @binding({number}) {_declaration(binding)};")
    if dispatch.faults:
        lines.append(f"@group(0) @binding({number + 1}) var<storage, read_write> faults: array<atomic<u32>>;")
        word = f"faults[{word_of(dispatch.faults.values())}]"  # what came first stays: the rest follows from it
        lines.append(f"fn refuse(reason: u32) {{ if (atomicLoad(&{word}) == 0u) {{ atomicStore(&{word}, reason); }} }}")
    return lines


def _declaration(binding: Binding) -> str:
    if isinstance(binding.tensor, Chunk):
        kind = "texture_storage_2d<rgba32uint, read>" if binding.view == "stored" else "texture_2d<u32>"
        return f"var {binding.name}: {kind}"
    if binding.tensor is not None and binding.view == "uniform":
        return f"var<uniform> {binding.name}: array<vec4<u32>, {_uniform_length(binding.tensor)}>"
    mode = "read" if binding.access == "read" else "read_write"
    return f"var<storage, {mode}> {binding.name}: array<{_array_type(binding)}>"


def _functions(dispatch: Dispatch) -> list[str]:
    """x_row and x_at of every binding; of absent ones too."""
    found = []
    for binding in dispatch.bindings:
        if isinstance(binding, Tables):
            found += [_row(name, t) + _in_tables(name, t, binding) for name, t in binding.tensors.items()]
        elif isinstance(binding.tensor, Chunk):
            place = "at" if binding.view == "stored" else "at, 0"
            head = f"fn {binding.name}_texel(at: vec2<u32>) -> vec4<u32>"
            found.append(f"{head} {{ return textureLoad({binding.name}, {place}); }}")
        else:
            singles = binding.view in ONE_BY_ONE and not _is_vector(binding)
            element = _element(binding.name, binding.tensor) + "\n" if singles else ""
            if binding.view in ("fours", "singles"):
                element += four_functions(binding.name, binding.tensor, _is_vector(binding), binding.access == "write")
            found.append(_row(binding.name, binding.tensor) + element)
    return found


def _row(name: str, tensor: Operand | None) -> str:
    start = "0u" if tensor is None else f"P.{name}_offset + t * P.{name}_stride"
    return f"fn {name}_row(t: u32) -> u32 {{ return {start}; }}\n"


def _in_tables(name: str, tensor: Operand | None, tables: Tables) -> str:
    kind = "f32" if tensor is None else DIRECT[tensor.format]
    value = "0.0" if tensor is None else f"bitcast<{kind}>({_array_of(tables, tensor)}[i])"
    return f"fn {name}_at(i: u32) -> {kind} {{ return {value}; }}"


def _element(name: str, tensor: Operand | None) -> str:
    """x_at of a tensor with an array of its own."""
    if tensor is None:
        return f"fn {name}_at(i: u32) -> f32 {{ return 0.0; }}"
    if tensor.format in NARROW:
        half = f"({name}[i >> 1u] >> ((i & 1u) * 16u)) & 0xffffu"
        return f"fn {name}_at(i: u32) -> f32 {{ return widen_{tensor.format}({half}); }}"
    if tensor.format in DIRECT:
        return f"fn {name}_at(i: u32) -> {DIRECT[tensor.format]} {{ return {name}[i]; }}"
    kind = "i32" if tensor.format == "i8" else "u32"  # of a byte, with its sign where it has one
    byte = f"extractBits(bitcast<{kind}>({name}[i >> 2u]), (i & 3u) * 8u, 8u)"
    return f"fn {name}_at(i: u32) -> {kind} {{ return {byte}; }}"
