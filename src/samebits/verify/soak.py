"""Many launches of one kernel on the same inputs: for the fault that shows once in a thousand.

Two executables of the op take turns, on other inputs and in other memory, so that what one leaves behind on the device
is there when the other runs. The first results of each are compared with the definition; after every later launch,
results and the memory around them are compared with those as bytes.
"""

from __future__ import annotations

from collections.abc import Iterator

from samebits.backends.interface import Backend
from samebits.backends.one_op import OneOp, one_node
from samebits.core.errors import Unsupported
from samebits.core.format import HostTensor, copy_tensor, spec_bytes
from samebits.core.tiers import Tier
from samebits.ops import Bound, Op, bind, evaluate, make_inputs
from samebits.ops.evaluate import spec_of
from samebits.ops.record import Case
from samebits.verify.bounds import Judge
from samebits.verify.harness import PATTERNS, same_bytes
from samebits.verify.input_sets import Inputs, fewer_rows
from samebits.verify.locate import same_bits
from samebits.verify.model import Finding
from samebits.verify.program import Memory, difference, num_rows
from samebits.verify.refusals import Comparisons, crash, held_to_claims, never_refused

OTHER_EVERY = 8  # launches of the second executable among those of the first
POISON_EVERY = 11  # in between, outputs keep the results of the launch before
LEAST_ELEMENTS, NUM_CANDIDATES = 32, 6
QUICK_RUNS, FULL_RUNS = 2_100, 10_000  # a fault of one launch in 2,000 shows with 65 % and 99 %
NUM_THREADS = 2  # a race needs two


def soak_case(op: Op, seed: int = 0) -> Case:
    """A small case of the op, so that many launches cost little, but one with more than a few elements.

    Never a case of special values: with very large ones around, a bound lets anything pass.
    """

    def cost(case: Case) -> tuple[bool, int]:
        bound = bind(op, **make_inputs(op, case, seed))
        num_results = max(spec.num_elements for spec in bound.result_specs())
        return num_results < LEAST_ELEMENTS, sum(spec_bytes(spec) for spec in bound.specs.values())

    ordinary = [case for case in op.cases if not case.full and not case.extra.get("special")]
    return min(ordinary[:NUM_CANDIDATES], key=cost)


def soak_findings(
    backend: Backend, op: Op, inputs: Inputs, tier: Tier, num_runs: int, compared: Comparisons
) -> Iterator[Finding]:
    """Yield the first launch of `num_runs` that is wrong, if there is any.

    The first launch is compared with the definition: "values" or, where the tier promises them, "bits". A later one is
    compared with the first: if its bits differ, "soak" if its values are not as expected, else "run-to-run" if the tier
    promises bits. "guard", "input", "error" and "refused" mean what they mean everywhere. Raise Unsupported if a
    kernel is missing.
    """
    backend.set_threads(NUM_THREADS)
    other = fewer_rows(op, inputs)
    try:
        pair = [Launches(backend, op, call, tier) for call in (inputs, inputs if other is None else other)]
    except Unsupported:
        raise
    except Exception as error:  # any exception of a backend under test is its failure, with its text
        yield crash(error)
        return
    for number in range(num_runs):
        launches = pair[number % OTHER_EVERY == OTHER_EVERY - 1]
        try:
            found = launches.launch(is_poisoned=number % POISON_EVERY == 0)
        except Exception as error:  # as above
            found = crash(error)
        if found is not None:
            yield Finding(found.check, f"launch {number + 1} of {num_runs}: {found.where}")
            return
    compared.made("guard", "input", "soak", *(["run-to-run"] if tier >= Tier.INVARIANT else []))
    for launches in pair:
        yield from launches.strays()


class Launches:
    """A compiled op whose inputs stay as they are, and what its launches must leave in memory."""

    def __init__(self, backend: Backend, op: Op, inputs: Inputs, tier: Tier) -> None:
        self._backend, self._op, self._tier = backend, op, tier
        self._bound: Bound = bind(op, **inputs)
        specs, attrs = self._bound.specs, self._bound.attrs
        with held_to_claims(backend, lambda: one_node(op, specs, attrs), tier):
            self._call = OneOp(backend, op, specs, attrs, tier)
        self._num_poisonings = 0
        self._inputs: dict[str, Memory] = {}
        for name, tensor in self._bound.tensors.items():
            self._inputs[name] = self._memory(name, tensor)
            self._call.bind({name: self._inputs[name].fill(tensor, num_rows(tensor), 0, PATTERNS[0])})
        self._specs = self._bound.result_specs()
        self._outputs: dict[int, Memory] = {}
        for i, value in self._call.own_results().items():
            rows = self._specs[i].upper_shape[0]
            self._outputs[i] = Memory(backend, value.name, self._specs[i], rows, 1)
            self._call.bind({value.name: self._outputs[i].fill(None, rows, 0, PATTERNS[0])})
        self._first: dict[int, HostTensor] = {}
        self._wanted: dict[int, HostTensor] = {}  # whole buffers, guards and all

    def _memory(self, name: str, tensor: HostTensor) -> Memory:
        return Memory(self._backend, name, spec_of(tensor), num_rows(tensor), 1)

    def launch(self, is_poisoned: bool) -> Finding | None:
        """One run; what is wrong with it."""
        for name in self._op.writes:
            if name in self._inputs:
                tensor = self._bound.tensors[name]
                self._inputs[name].fill(tensor, num_rows(tensor), 0, PATTERNS[0])
        if is_poisoned:
            self._poison()
        with never_refused():
            self._call.run()
        if not self._first:
            self._first = {i: self._result(i) for i in range(len(self._specs))}
            self._expect()
            return self._compared_with_definition()
        for i in self._first:
            if not self._is_same(i):
                return self._judge(i)
        return None

    def _compared_with_definition(self) -> Finding | None:
        """Return what is wrong with the first launch's results."""
        copies = {name: copy_tensor(tensor) for name, tensor in self._bound.tensors.items()}
        self._definition = Judge(self._bound, evaluate(bind(self._op, **copies, **self._bound.attrs)))
        for i, first in self._first.items():
            finding, is_same = difference(self._bound, self._definition, i, first, "values")
            if finding is not None:
                return finding
            if not is_same and self._tier >= Tier.PORTABLE:
                name = self._op.active_results(self._bound.tensors, self._bound.attrs)[i].name
                return Finding("bits", f"{name}: other bits than the definition's")
        return None

    def _poison(self) -> None:
        """Another pattern in and around all outputs, and so in what their memory must hold after the next run."""
        self._num_poisonings += 1
        pattern = PATTERNS[self._num_poisonings % len(PATTERNS)]
        for i, memory in self._outputs.items():
            memory.fill(None, self._specs[i].upper_shape[0], 0, pattern)
        self._expect()

    def _expect(self) -> None:
        for i, result in self._first.items():
            memory = self._place(i)
            self._wanted[i] = result if memory is None else memory.expect(result)

    def _place(self, index: int) -> Memory | None:
        """Where a result lies, if it is in our memory."""
        result = self._op.active_results(self._bound.tensors, self._bound.attrs)[index]
        return self._outputs.get(index) if result.alias_of is None else self._inputs[result.alias_of]

    def _result(self, index: int) -> HostTensor:
        memory = self._place(index)
        if memory is None:
            return self._call.result(index)
        return memory.inspect(may_change=True)[0]

    def _is_same(self, index: int) -> bool:
        memory = self._place(index)
        buffer = self._call.executable.output(index) if memory is None else memory.base
        return same_bytes(self._backend.peek(buffer), self._wanted[index])

    def _judge(self, index: int) -> Finding | None:
        got = self._result(index)
        if same_bits(got, self._first[index]):  # then it is the memory around it that differs
            strays = list(self.strays())
            return strays[0] if strays else None
        finding, _ = difference(self._bound, self._definition, index, got, "soak")
        if finding is None and self._tier >= Tier.INVARIANT:
            name = self._op.active_results(self._bound.tensors, self._bound.attrs)[index].name
            return Finding("run-to-run", f"{name}: other bits than the first launch's")
        return finding

    def strays(self) -> Iterator[Finding]:
        """What the memory around all tensors shows, and inputs that have changed."""
        for name, memory in self._inputs.items():
            yield from memory.inspect(may_change=name in self._op.writes)[1]
        for memory in self._outputs.values():
            yield from memory.inspect(may_change=True)[1]
