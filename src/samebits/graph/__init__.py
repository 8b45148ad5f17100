"""SSA graphs over op specs: what a backend compiles. Values, patterns, rewriting, checks and printing."""

from samebits.graph.check import check_graph
from samebits.graph.ir import Graph, GraphBuilder, InputKind, Node, Value
from samebits.graph.printer import diff_graphs, print_graph

__all__ = ["Graph", "GraphBuilder", "InputKind", "Node", "Value", "check_graph", "diff_graphs", "print_graph"]
