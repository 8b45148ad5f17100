"""The kernel record: one implementation of one op in one language, with the tier it claims."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from samebits.core.shapes import TensorSpec
from samebits.core.tiers import Tier
from samebits.ops.record import OPS, Op


@dataclass(frozen=True)
class OpCall:
    """What a kernel may know when it is chosen: formats, static sizes and attrs, never a batch size.

    Dimensions along the op's invariant axes are symbols here.
    """

    op: Op
    inputs: Mapping[str, TensorSpec]
    attrs: Mapping[str, Any]
    tier: Tier


@dataclass(frozen=True)
class Kernel:
    """`run` takes the op's inputs and attrs in the language's own tensors and returns its results as a tuple.

    when(call) returns nothing, or the reason why this kernel cannot serve it.
    prepack[input](tensor) rearranges a constant input once at load, from host to host or, where the backend packs on
    its device, there; others are taken as they are. All kernels that read one weight must agree on its packing, so that
    one packed table serves an embedding and a tied head.
    """

    op: Op
    language: str
    tier: Tier
    run: Callable[..., Any]
    when: Callable[[OpCall], str | None] | None = None
    prepack: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.language}/{self.run.__name__}"

    def refusal(self, call: OpCall) -> str | None:
        """Nothing if the kernel serves the call, else the reason."""
        if self.tier < call.tier:
            return f"{self.name} claims only {self.tier.label}"
        return self.when(call) if self.when else None


class KernelTable:
    """The kernels of one language, in order of preference for each op."""

    def __init__(self, language: str) -> None:
        self.language = language
        self._by_op: dict[str, list[Kernel]] = {}

    def add(self, kernel: Kernel) -> None:
        self._by_op.setdefault(kernel.op.name, []).append(kernel)

    def __iter__(self) -> Iterator[Kernel]:
        return (kernel for kernels in self._by_op.values() for kernel in kernels)

    def __getitem__(self, op_name: str) -> list[Kernel]:
        return self._by_op.get(op_name, [])

    def implements(
        self,
        op_name: str,
        *,
        tier: Tier,
        when: Callable[[OpCall], str | None] | None = None,
        prepack: Mapping[str, Callable[[Any], Any]] | None = None,
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Registers the decorated function; its parameters must be the op's, or the import fails.

        A kernel whose `when` refuses an argument need not name it: `**refused` takes what is left.
        """

        def register(run: Callable[..., Any]) -> Callable[..., Any]:
            op = OPS[op_name]
            wanted = list(inspect.signature(op.reference).parameters)
            parameters = inspect.signature(run).parameters.values()
            named = [p.name for p in parameters if p.kind is not p.VAR_KEYWORD]
            takes_rest = len(named) < len(parameters)
            if named != wanted and not (takes_rest and set(named) <= set(wanted)):
                raise TypeError(f"kernel {run.__name__}: parameters must be those of {op_name}: {wanted}")
            self.add(Kernel(op, self.language, tier, run, when, prepack or {}))
            return run

        return register
