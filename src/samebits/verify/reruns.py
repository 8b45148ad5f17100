"""One executable, several runs: nothing of an earlier run may show in a later one.

A run depends on what is bound when it starts, on what that memory holds then, and on the sizes of the last `prepare`;
see `Executable` in backends/interface.py. So every run must give what a fresh executable gives.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np

from samebits.backends.interface import Backend
from samebits.backends.one_op import OneOp, one_node
from samebits.core.errors import Unsupported
from samebits.core.format import HostTensor, Packed, copy_tensor
from samebits.core.tiers import Tier
from samebits.graph import InputKind
from samebits.ops import Bound, Op, bind, evaluate
from samebits.ops.evaluate import spec_of
from samebits.verify.bounds import Judge
from samebits.verify.harness import PATTERNS, execute
from samebits.verify.input_sets import Inputs, Signature, constant_names, fixed_specs, signature_of
from samebits.verify.locate import same_bits
from samebits.verify.model import Finding
from samebits.verify.program import Memory, difference, num_rows
from samebits.verify.refusals import Comparisons, crash, held_to_claims, never_refused

Results = tuple[HostTensor, ...]


@dataclass(frozen=True)
class Manner:
    """How the memory of one run becomes that of the next.

    keeps      tensors stay bound and are copied into; they are bound again only where their size changes
    places     places in one buffer that runs take in turn; 0: every call has buffers of its own
    constants  weights and caches are declared as such; a weight is then bound again whenever it changes
    """

    text: str
    keeps: bool
    places: int
    binds_outputs: bool
    constants: bool


MANNERS = (
    Manner("other buffers bound", keeps=False, places=0, binds_outputs=False, constants=True),
    Manner("bound buffers copied into", keeps=True, places=1, binds_outputs=True, constants=False),
    Manner("other rows of the same buffers bound", keeps=False, places=3, binds_outputs=True, constants=False),
)


class Call:
    """One call of an executable, and what it must give."""

    def __init__(self, backend: Backend, bound: Bound, name: str, dims: dict[str, int], tier: Tier) -> None:
        self.bound, self.name, self.dims = bound, name, dims
        self._backend, self._tier = backend, tier
        self.inputs: Inputs = {**bound.tensors, **bound.attrs}

    @cached_property
    def want(self) -> Results:
        """The reference's results, computed on copies."""
        copies = {k: copy_tensor(v) if isinstance(v, (np.ndarray, Packed)) else v for k, v in self.inputs.items()}
        return evaluate(bind(self.bound.op, **copies))

    @cached_property
    def judge(self) -> Judge:
        return Judge(self.bound, self.want)

    @cached_property
    def fresh(self) -> Results:
        """The results of an executable that runs for the first time."""
        return execute(self._backend, self.bound.op, self.inputs, self._tier).results


def rerun_findings(
    backend: Backend, op: Op, calls: Mapping[str, Inputs], tier: Tier, compared: Comparisons
) -> Iterator[Finding]:
    """Yield findings of calls of one signature (`input_sets.calls_of`), made of one executable one after another.

    Every run is compared with the definition, and its bits with those of a fresh executable. A difference is "reruns"
    or "run-to-run" if a fresh executable gives another result, and "values" or "bits" if it gives the same wrong one;
    "guard", "input", "error" and "refused" mean what they mean everywhere. The first finding ends a manner. What is
    compared, and what the backend does not support, is added to `compared`.
    """
    bounds = [bind(op, **call) for call in calls.values()]
    signature = signature_of(op, bounds)
    made = zip(bounds, calls, signature.dims, strict=True)
    all_calls = [Call(backend, bound, name, dims, tier) for bound, name, dims in made]
    for manner in MANNERS:
        try:
            yield from _compile(backend, op, all_calls, signature, manner, tier, compared).findings()
        except Unsupported as error:
            compared.refuse(f"reruns, {manner.text}", error)
        except Exception as error:  # any exception of a backend under test is its failure, with its text
            yield crash(error, f"{manner.text}: ")
        else:
            compared.made("guard", "input", "reruns", *(["run-to-run"] if tier >= Tier.INVARIANT else []))


def shared_buffer_findings(
    backend: Backend, op: Op, call: Inputs, tier: Tier, compared: Comparisons
) -> Iterator[Finding]:
    """Two inputs of one spec as views of one buffer must give what they give in buffers of their own."""
    try:
        yield from _shared_buffer(backend, op, call, tier)
    except Unsupported as error:
        compared.refuse("reruns, two inputs in one buffer", error)
    except Exception as error:  # as above
        yield crash(error, "two inputs in one buffer: ")


def _shared_buffer(backend: Backend, op: Op, call: Inputs, tier: Tier) -> Iterator[Finding]:
    bound = bind(op, **call)
    plain = {n: t for n, t in bound.tensors.items() if isinstance(t, np.ndarray) and t.ndim and n not in op.writes}
    pairs = [(a, b) for a, b in combinations(plain, 2) if bound.specs[a] == bound.specs[b] and len(plain[a])]
    if not pairs:
        return
    first, second = pairs[0]
    num_rows = len(plain[first])
    with held_to_claims(backend, lambda: one_node(op, bound.specs, bound.attrs), tier):
        together = OneOp(backend, op, bound.specs, bound.attrs, tier)
    both = np.concatenate([plain[first], plain[second]])
    base = backend.alloc(spec_of(both))
    backend.copy_in(base, both)
    halves = {first: ("slice", 0, 0, num_rows), second: ("slice", 0, num_rows, 2 * num_rows)}
    together.bind({name: backend.view(base, half) for name, half in halves.items()})
    together.put({name: tensor for name, tensor in bound.tensors.items() if name not in halves})
    with never_refused():
        together.run()
    fresh = execute(backend, op, {**bound.tensors, **bound.attrs}, tier).results
    for i, result in enumerate(op.active_results(bound.tensors, bound.attrs)):
        if result.alias_of is None and not same_bits(together.result(i), fresh[i]):
            yield Finding("reruns", f"{result.name}: {first} and {second} in one buffer give other values")
            return


def _compile(
    backend: Backend,
    op: Op,
    calls: list[Call],
    signature: Signature,
    manner: Manner,
    tier: Tier,
    compared: Comparisons,
) -> Replay:
    """The op compiled for all calls; on a backend without open sizes, for those that are as large as the first."""
    kinds: dict[str, InputKind] = {}
    if manner.constants:
        kinds |= dict.fromkeys(constant_names(op, calls[0].inputs), "weight")
        kinds |= dict.fromkeys((name for name in op.caches if name in calls[0].bound.tensors), "cache")
    attrs = calls[0].bound.attrs
    try:
        with held_to_claims(backend, lambda: one_node(op, signature.specs, attrs, kinds), tier):
            return Replay(backend, op, OneOp(backend, op, signature.specs, attrs, tier, kinds), manner, calls, tier)
    except Unsupported as error:
        if not calls[0].dims:
            raise
        compared.refuse("reruns, other sizes", error)
    specs = fixed_specs(signature.specs, calls[0].dims)
    alike = [call for call in calls if call.dims == calls[0].dims]
    with held_to_claims(backend, lambda: one_node(op, specs, attrs, kinds), tier):
        return Replay(backend, op, OneOp(backend, op, specs, attrs, tier, kinds), manner, alike, tier)


def order_of(num_calls: int) -> list[int]:
    """The first call, the second, the first again, all others, and the first once more."""
    return [0, *(n for n in (1, 0) if n < num_calls), *range(2, num_calls), 0]


class Replay:
    """A compiled op and the memory of its calls."""

    def __init__(
        self, backend: Backend, op: Op, compiled: OneOp, manner: Manner, calls: list[Call], tier: Tier
    ) -> None:
        self._backend, self._op, self._compiled, self._manner = backend, op, compiled, manner
        self._calls, self._tier = calls, tier
        own = compiled.own_results() if manner.binds_outputs else {}
        self._outputs = {i: value.name for i, value in own.items()}
        self._memories: dict[tuple[str, str], Memory] = {}
        self._bound_rows: dict[str, int] = {}

    def findings(self) -> Iterator[Finding]:
        """Runs the calls in turn until something is found."""
        before = ""
        for number, index in enumerate(order_of(len(self._calls))):
            call = self._calls[index]
            place = f"{self._manner.text}, run {number + 1} ({call.name}{before})"
            before = f" after {call.name}"
            try:
                with never_refused():
                    found = list(self._run(call, number))
            except Exception as error:  # as above
                found = [crash(error)]
            if found:
                yield from (Finding(f.check, f"{place}: {f.where}") for f in found)
                return

    def _run(self, call: Call, number: int) -> Iterator[Finding]:
        pattern = PATTERNS[number % len(PATTERNS)]
        tensors = {
            name: self._place(name, call, tensor, number, pattern) for name, tensor in call.bound.tensors.items()
        }
        outputs = {
            i: self._place(value, call, None, number, pattern, spec_from=call.want[i])
            for i, value in self._outputs.items()
        }
        self._compiled.run(call.dims)
        after: dict[str, HostTensor] = {}
        for name, memory in tensors.items():
            after[name], strays = memory.inspect(may_change=name in self._op.writes)
            yield from strays
        for i, result in enumerate(self._op.active_results(call.bound.tensors, call.bound.attrs)):
            if result.alias_of is not None:
                got = after[result.alias_of]
            elif i in outputs:
                got, strays = outputs[i].inspect(may_change=True)
                yield from strays
            else:
                got = self._compiled.result(i)
            yield from self._judge(call, i, got)

    def _place(
        self,
        name: str,
        call: Call,
        tensor: HostTensor | None,
        number: int,
        pattern: int,
        spec_from: HostTensor | None = None,
    ) -> Memory:
        """Puts a tensor, or room for a result, where this run finds it, and binds it where the manner asks for it."""
        shown = spec_from if tensor is None else tensor
        if shown is None:
            raise TypeError("a tensor or the result to make room for")
        spec, places = spec_of(shown), self._manner.places
        key = (name, "" if places else call.name)
        if key not in self._memories:
            max_rows = self._most_rows(name) if places else num_rows(shown)
            self._memories[key] = Memory(self._backend, name, spec, max_rows, max(places, 1))
        rows = num_rows(shown)
        view = self._memories[key].fill(tensor, rows, number % places if places else 0, pattern)
        if not self._manner.keeps or self._bound_rows.get(name) != rows:
            self._compiled.bind({name: view})
            self._bound_rows[name] = rows
        return self._memories[key]

    def _most_rows(self, name: str) -> int:
        numbers = {value: i for i, value in self._outputs.items()}
        sized = [c.want[numbers[name]] if name in numbers else c.bound.tensors[name] for c in self._calls]
        return max(map(num_rows, sized))

    def _judge(self, call: Call, index: int, got: HostTensor) -> Iterator[Finding]:
        finding, is_same = difference(call.bound, call.judge, index, got, "reruns")
        if is_same or (finding is None and self._tier < Tier.INVARIANT):
            return
        name = self._op.active_results(call.bound.tensors, call.bound.attrs)[index].name
        is_fresh_too = same_bits(call.fresh[index], got)
        if finding is not None:
            yield Finding("values", finding.where) if is_fresh_too else finding
        elif not is_fresh_too:
            yield Finding("run-to-run", f"{name}: other bits than a fresh executable's")
        elif self._tier >= Tier.PORTABLE:
            yield Finding("bits", f"{name}: other bits than the definition's")
