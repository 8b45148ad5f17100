"""What every graph must be, whoever made it. Run after every pass in tests, and before a graph is compiled."""

from __future__ import annotations

from collections.abc import Callable

from samebits.core.errors import SamebitsError
from samebits.core.shapes import TensorSpec
from samebits.graph.ir import Graph, Node, Value
from samebits.graph.uses import is_read_twice

Infer = Callable[[Node], tuple[TensorSpec, ...]]


class BadGraph(SamebitsError):
    """A graph that breaks a rule; the text names the node."""


def check_graph(graph: Graph, infer: Infer | None = None) -> None:
    """Raises BadGraph unless: every value is defined once and before it is used, uses agree with the definition,
    memory that is written is written once and its old value never read again, no weight is written, outputs
    exist. `infer` (ops.build.infer_specs) also has every node's arguments and result specs worked out again."""
    defined: dict[str, Value] = {}
    overwritten: dict[str, str] = {}  # value -> the node that wrote over it
    for value in graph.inputs:
        _define(defined, value, "the inputs")
    for index, node in enumerate(graph.nodes):
        where = f"node {index}, {node}"
        for name, value in node.inputs.items():
            _use(defined, overwritten, value, f"{where}: {name}")
        _write(graph, node, overwritten, where)
        for value in node.outputs:
            _define(defined, value, where)
        if infer is not None:
            _check_specs(node, infer, where)
    for value in graph.outputs:
        _use(defined, overwritten, value, "the outputs")
    _check_inputs(graph)


def _define(defined: dict[str, Value], value: Value, where: str) -> None:
    if value.name in defined:
        raise BadGraph(f"{where}: %{value.name} is defined a second time")
    defined[value.name] = value


def _use(defined: dict[str, Value], overwritten: dict[str, str], value: Value, where: str) -> None:
    if value.name not in defined:
        raise BadGraph(f"{where}: %{value.name} is not defined here")
    if defined[value.name] != value:
        raise BadGraph(f"{where}: %{value.name} is {defined[value.name].spec}, used as {value.spec}")
    if value.name in overwritten:
        raise BadGraph(f"{where}: %{value.name} was overwritten by {overwritten[value.name]}")


def _write(graph: Graph, node: Node, overwritten: dict[str, str], where: str) -> None:
    for old, new in node.writes:
        if graph.kinds.get(old.name) == "weight":
            raise BadGraph(f"{where}: writes the weight %{old.name}")
        if is_read_twice(node, old):
            raise BadGraph(f"{where}: reads %{old.name} by a second name while it writes it")
        if old.spec != new.spec:
            raise BadGraph(f"{where}: writes {new.spec} into %{old.name}, which is {old.spec}")
        overwritten[old.name] = where


def _check_specs(node: Node, infer: Infer, where: str) -> None:
    try:
        specs = infer(node)
    except SamebitsError as error:
        raise BadGraph(f"{where}: {error}") from error
    found = tuple(v.spec for v in node.outputs)
    if specs != found:
        shown = ", ".join(map(str, specs))
        raise BadGraph(f"{where}: results are {', '.join(map(str, found))}, the op gives {shown}")


def _check_inputs(graph: Graph) -> None:
    names = {v.name for v in graph.inputs}
    for name in graph.kinds:
        if name not in names:
            raise BadGraph(f"kinds: %{name} is not an input")
    for name, parts in graph.joined.items():
        if name not in graph.weights or len(parts) < 2:
            raise BadGraph(f"joined: %{name} must be a weight of two parts or more, is {' | '.join(parts)}")
