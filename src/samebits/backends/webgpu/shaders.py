"""The shaders that WGSL kernels would run for a node, put together without a device: nothing is compiled."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from math import prod

from samebits.backends.interface import Backend
from samebits.backends.support import choose_kernels
from samebits.backends.webgpu.step_arrays import small_arrays
from samebits.backends.windows import Window, find_windows
from samebits.core.format import FORMATS
from samebits.core.tiers import Tier
from samebits.graph import Graph, Node, Value
from samebits.kernels.record import Kernel
from samebits.kernels.wgsl.lib.compose import shader_text
from samebits.kernels.wgsl.lib.launch import Binding, Call, Chunk, Dispatch, Operand, Tables, Weight
from samebits.kernels.wgsl.lib.params import params_of


@dataclass(frozen=True)
class Shader:
    """One dispatch of a node: the text that is compiled, and a comment of what it is run with."""

    node: Node
    dispatch: Dispatch
    text: str

    def __str__(self) -> str:
        grid = " x ".join(map(str, self.dispatch.grid))
        bindings = [_shown(b) for b in self.dispatch.bindings]
        params = [f"{name} = {value}" for name, value in params_of(self.dispatch)]
        lines = [
            f"{self.dispatch.shader}.wgsl on {grid} workgroups, for {self.node}",
            f"bindings: {', '.join(bindings)}",
            f"parameters: {', '.join(params) or 'none'}",
        ]
        return "".join(f"// {line}\n" for line in lines) + self.text


@dataclass(frozen=True)
class Places:
    """Values that are columns of others, and arrays of the step that lie together."""

    windows: Mapping[str, Window]
    small: Container[str]


def shaders_of(
    backend: Backend, graph: Graph, numbers: set[int], dims: Mapping[str, int], tier: Tier
) -> Iterator[Shader]:
    """Those of some nodes, by their numbers in the graph, at the sizes `dims` of its symbols.

    Unsupported names a node without a kernel. A device need not be there.
    """
    places = Places(find_windows(graph), small_arrays(graph))
    chosen = [graph.nodes[number] for number in sorted(numbers)]
    nodes = tuple(n for n in chosen if n.outputs[0].name not in places.windows)  # those are read where they lie
    kernels = choose_kernels(backend, Graph(graph.inputs, nodes, ()), tier)
    for node, kernel in zip(nodes, kernels, strict=True):
        for dispatch in kernel.run(_call(node, kernel, places, dims)):
            yield Shader(node, dispatch, shader_text(dispatch))


def _call(node: Node, kernel: Kernel, places: Places, dims: Mapping[str, int]) -> Call:
    inputs = {
        name: _weight(value) if name in kernel.prepack else _operand(value, places, dims)
        for name, value in node.inputs.items()
    }
    outputs = tuple(_operand(value, places, dims) for value in node.outputs)
    return Call(inputs, outputs, node.attrs, lambda num_words: Operand("u32", (num_words,), "scratch"))


def _operand(value: Value, places: Places, dims: Mapping[str, int]) -> Operand:
    """Names stand for memory."""
    spec = value.spec.at(dims)
    shape, window = spec.upper_shape, places.windows.get(value.name, Window(value.name, 0, 0))
    memory = "tables" if value.name in places.small else window.base
    size = FORMATS[spec.format].block_bytes
    stride = window.row_stride // size or prod(shape[1:])
    return Operand(spec.format, shape, memory, window.offset // size, stride)


def _weight(value: Value) -> Weight:
    shape = value.spec.upper_shape
    return Weight(value.spec.format, shape, (Chunk(0, shape[0], value.name),))


def _shown(binding: Binding | Tables) -> str:
    if isinstance(binding, Tables):
        return f"tables ({', '.join(binding.tensors)})"
    tensor = binding.tensor
    if isinstance(tensor, Operand):
        return f"{binding.name}: {tensor.format}{list(tensor.shape)}"
    return f"{binding.name}: packed rows" if tensor else f"{binding.name}: absent"
