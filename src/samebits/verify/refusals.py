"""What a refusal means: `Unsupported` is an answer only where `samebits support` names a missing kernel.

A program of fixed sizes is claimed if every node has a kernel at the tier (`backends/support.py`, which dispatch and
`samebits support` read too). A backend that refuses a claimed program has broken its claim, and the case fails. Only
these refusals are agreed: a node without a kernel, and sizes that are left open, which a backend need not compile.
What an agreed refusal leaves out is "not compared". A case without any comparison is "unsupported", never a pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from samebits.backends.interface import Backend
from samebits.backends.support import choose_kernels
from samebits.core.errors import SamebitsError, Unsupported
from samebits.core.shapes import Sym
from samebits.core.tiers import Tier
from samebits.graph import Graph
from samebits.verify.model import Finding, one_line


class BrokenClaim(SamebitsError):
    """The backend refused a program although it has a kernel for every node."""


@dataclass
class Comparisons:
    """What was compared in a case, and what was not.

    checks    the checks that were made, in order; each is a key of `model.CHECKS`
    refused   a line for each comparison that the backend does not support, with its reason
    """

    checks: dict[str, None] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)

    def made(self, *checks: str) -> None:
        """Note checks whose comparison took place."""
        self.checks |= dict.fromkeys(checks)

    def refuse(self, what: str, error: Unsupported) -> None:
        """Note a comparison that the backend does not support."""
        line = f"{what}: {one_line(error)}"
        self.refused += [line] if line not in self.refused else []


def has_open_sizes(graph: Graph) -> bool:
    """Return whether an input of the graph has a size that is known only at run time."""
    return any(isinstance(size, Sym) for value in graph.inputs for size in value.spec.shape)


def is_claimed(backend: Backend, graph: Graph, tier: Tier) -> bool:
    """Return whether the backend must run the graph: its sizes are fixed and each node has a kernel at the tier."""
    try:
        choose_kernels(backend, graph, tier)
    except Unsupported:
        return False
    return not has_open_sizes(graph)


@contextmanager
def held_to_claims(backend: Backend, graph: Callable[[], Graph], tier: Tier) -> Iterator[None]:
    """Raise BrokenClaim in place of Unsupported if the backend claims the graph, which is built only then."""
    try:
        yield
    except Unsupported as error:
        if is_claimed(backend, graph(), tier):
            raise BrokenClaim(str(error)) from error
        raise


@contextmanager
def never_refused() -> Iterator[None]:
    """Raise BrokenClaim in place of Unsupported: what was compiled must run at every size it was compiled for."""
    try:
        yield
    except Unsupported as error:
        raise BrokenClaim(str(error)) from error


def crash(error: Exception, where: str = "") -> Finding:
    """Return the finding for an exception other than an agreed refusal: a failure at every tier."""
    check = "refused" if isinstance(error, BrokenClaim) else "error"
    return Finding(check, where + one_line(error))
