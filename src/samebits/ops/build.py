"""Ops as methods that add nodes to a graph: what models and decompositions are written with.

b = OpBuilder()
x = b.input("x", TensorSpec((Sym("T", 512), 576), "f32"))
y = b.rms_norm(x, w, eps=1e-5)      # a Value, or a tuple of them
"""

from __future__ import annotations

from typing import Any

from samebits.core.shapes import TensorSpec
from samebits.graph import Graph, GraphBuilder, InputKind, Node, Value
from samebits.ops.evaluate import bind_specs, name_arguments
from samebits.ops.record import OPS


class OpBuilder:
    """A graph under construction; `finish` ends it. A pass gives it the builder that collects its nodes."""

    def __init__(self, builder: GraphBuilder | None = None) -> None:
        self.builder = GraphBuilder() if builder is None else builder

    def input(self, name: str, spec: TensorSpec, kind: InputKind = "step") -> Value:
        """An input of the graph. `kind`: "step" (new in every step), "weight" (a constant) or "cache"."""
        return self.builder.input(name, spec, kind)

    def finish(self, *outputs: Value) -> Graph:
        return self.builder.finish(outputs)

    def __getattr__(self, name: str) -> Any:
        if name not in OPS:
            raise AttributeError(name)
        op = OPS[name]

        def add(*args: Any, **kwargs: Any) -> Any:
            named = name_arguments(op, args, kwargs)
            inputs = {t.name: named[t.name] for t in op.inputs if named.get(t.name) is not None}
            attrs, env = bind_specs(op, {name: value.spec for name, value in inputs.items()}, named)
            outputs = self.builder.add(op, inputs, attrs, env)
            return outputs[0] if len(outputs) == 1 else outputs

        return add


def infer_specs(node: Node) -> tuple[TensorSpec, ...]:
    """The specs of a node's results, worked out anew; BadInput where its arguments do not fit the record."""
    op, specs = OPS[node.op.name], node.specs
    attrs, env = bind_specs(op, specs, node.attrs)
    return op.infer(specs, attrs, env)
