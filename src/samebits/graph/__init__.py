"""SSA graphs over op specs: what a backend compiles."""

from samebits.graph.ir import Graph, GraphBuilder, Node, Value

__all__ = ["Graph", "GraphBuilder", "Node", "Value"]
