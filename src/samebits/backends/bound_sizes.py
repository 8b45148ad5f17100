"""The check that bound memory has the sizes of the coming run, shared by all backends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from samebits.core.errors import BadInput
from samebits.core.shapes import Sym, TensorSpec, upper
from samebits.graph import Graph


class BoundSizes:
    """Holds the sizes of bound memory and the sizes of the coming run, for a graph's inputs and outputs of open size.

    Memory and sizes may be given in any order between two runs, so they are compared when a run starts.
    """

    def __init__(self, where: str, graph: Graph) -> None:
        """where: the backend's name, for messages."""
        self._where = where
        self._open = {
            value.name: [(axis, dim) for axis, dim in enumerate(value.spec.shape) if isinstance(dim, Sym)]
            for value in (*graph.inputs, *graph.outputs)
            if any(isinstance(dim, Sym) for dim in value.spec.shape)
        }
        self._bound: dict[str, TensorSpec] = {}
        self._dims: Mapping[str, int] = {}
        self._is_checked = True

    def bind(self, name: str, spec: TensorSpec) -> None:
        """Note the size of the memory that was bound to a name."""
        if name in self._open:
            self._bound[name] = spec
            self._is_checked = False

    def release(self, names: Iterable[str]) -> None:
        """Forget the memory of names that the executable gives memory to by itself."""
        for name in names:
            self._bound.pop(name, None)

    def prepare(self, dims: Mapping[str, int]) -> None:
        """Note the sizes of the coming runs."""
        self._dims, self._is_checked = dict(dims), False

    def check(self) -> None:
        """Raise BadInput if a tensor of the coming run does not fit the memory that is bound to it.

        Memory may have more rows than the tensor. Along an inner axis both must agree, since rows lie as far apart as
        the tensor's are long.
        """
        if self._is_checked:
            return
        for name, spec in self._bound.items():
            for axis, dim in self._open[name]:
                if dim.name not in self._dims:
                    continue
                given, needed = upper(spec.shape[axis]), dim.value(self._dims)
                if given < needed or (axis > 0 and given != needed):
                    self._refuse(name, spec, axis, dim)
        self._is_checked = True

    def _refuse(self, name: str, spec: TensorSpec, axis: int, dim: Sym) -> None:
        what = "rows" if axis == 0 else f"entries along axis {axis}"
        given = f"memory of {upper(spec.shape[axis])} {what} ({spec})"
        needed = f"{dim.value(self._dims)} {what}, for {dim.name} = {self._dims[dim.name]}"
        raise BadInput(self._where, name, given, needed)
