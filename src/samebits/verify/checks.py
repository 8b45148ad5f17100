"""The checks of one case."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from random import Random
from typing import Any, TypeVar

import numpy as np

from samebits.backends.interface import Backend, Caps
from samebits.core.errors import Unsupported
from samebits.core.format import HostTensor, Packed, copy_tensor
from samebits.core.tiers import Tier
from samebits.ops import Op, bind, evaluate, make_inputs
from samebits.ops.equivalents import Equivalent, row_equivalents
from samebits.ops.record import Case
from samebits.verify.bounds import Arranged, Judge
from samebits.verify.harness import PATTERNS, execute, raw_bytes, same_bytes
from samebits.verify.locate import axis_labels, first_difference, untouched_rows
from samebits.verify.model import Finding, Result, Task, is_drawn, one_line
from samebits.verify.refusals import Comparisons, crash
from samebits.verify.teams import team_sizes
from samebits.verify.tolerance import as_numbers
from samebits.verify.verdicts import verdicts

DRAWN_TEAMS, DRAWN_WAYS = 1, 2
Way = TypeVar("Way")


def verify_case(backend: Backend, caps: Caps, op: Op, case: Case, task: Task) -> list[Result]:
    """One result per tier asked for."""
    inputs = make_inputs(op, case, task.seed)
    dice = Random(f"{task.seed}/{case.id}") if is_drawn(case.id) else None

    def find(tier: Tier, compared: Comparisons) -> Iterator[Finding]:
        return Examination(backend, op, inputs, tier, compared, dice).findings()

    return verdicts(backend, caps, op, inputs, task, find)


class Examination:
    """All checks of one call on one backend. Inputs are never modified.

    With dice, only a few of the other ways to ask for the same result are tried: a space has many rows.
    """

    def __init__(
        self,
        backend: Backend,
        op: Op,
        inputs: dict[str, Any],
        tier: Tier,
        compared: Comparisons,
        dice: Random | None = None,
    ) -> None:
        bound = bind(op, **inputs)
        self._compared, self._dice = compared, dice
        self._backend, self._op, self._tier, self._attrs = backend, op, tier, bound.attrs
        self._inputs = {**bound.tensors, **bound.attrs}
        self._bound = bound
        self._strays: list[Finding] = []  # what the memory around equivalent calls showed

    def findings(self) -> Iterator[Finding]:
        """Findings in the order of the checks; stops after one that makes the next meaningless."""
        try:
            want = self._reference()
        except FloatingPointError as error:
            yield Finding("error", f"the definition: {one_line(error)}")
            return
        try:
            self._backend.set_threads(1)  # the case before may have left another number
            first = execute(self._backend, self._op, self._inputs, self._tier, PATTERNS[0])
            second = execute(self._backend, self._op, self._inputs, self._tier, PATTERNS[1])
        except Exception as error:  # any exception of a backend under test is its failure, with its text
            yield crash(error)
            return
        self._compared.made("guard", "input", "unwritten", "nan", "values")
        judge = Judge(self._bound, want)
        yield from dict.fromkeys([*first.findings, *second.findings])
        unwritten = self._unwritten(first.results, second.results)
        if unwritten:
            yield unwritten
            return
        broken = list(self._values(first.results, judge))
        if not broken and not all(map(same_bytes, first.results, second.results)):
            broken = [Finding(f.check, f"again: {f.where}") for f in self._values(second.results, judge)]
        broken = broken or list(self._values_elsewhere(judge))
        yield from broken
        if self._tier >= Tier.INVARIANT and not broken:
            self._compared.made("run-to-run")
            moved = list(self._same("run-to-run", "again", second.results, first.results))
            yield from moved
            if not moved:
                yield from self._other_ways(first.results, judge)
        if self._tier >= Tier.PORTABLE and not broken:
            yield from self._bits(first.results, want)
            yield from self._flushed(first.results)

    def _reference(self) -> tuple[HostTensor, ...]:
        """The definition's results; FloatingPointError where it makes a subnormal."""
        copies = {k: copy_tensor(v) if isinstance(v, (np.ndarray, Packed)) else v for k, v in self._inputs.items()}
        with np.errstate(under="raise"):
            return evaluate(bind(self._op, **copies))

    def _run(self, inputs: dict[str, Any]) -> tuple[HostTensor, ...]:
        outcome = execute(self._backend, self._op, inputs, self._tier)
        self._strays += outcome.findings
        return outcome.results

    def _unwritten(self, first: tuple[HostTensor, ...], second: tuple[HostTensor, ...]) -> Finding | None:
        """An element that holds the pattern of its run in two runs was never written."""
        for i, (a, b) in enumerate(zip(first, second, strict=True)):
            if self._op.results[i].alias_of is not None:
                continue
            x, y = raw_bytes(a), raw_bytes(b)
            itemsize = 1 if isinstance(a, Packed) else a.itemsize
            untouched = ((x == PATTERNS[0]) & (y == PATTERNS[1])).reshape(-1, itemsize).all(axis=1)
            if untouched.any():
                at = int(np.argmax(untouched))
                where = f"{self._op.results[i].name}: element {at} and {int(untouched.sum()) - 1} more"
                return Finding("unwritten", where)
        return None

    def _values(self, got: tuple[HostTensor, ...], judge: Judge | Arranged) -> Iterator[Finding]:
        """What lies outside the bounds of what was expected."""
        for i, (a, b) in enumerate(zip(got, judge.want, strict=True)):
            name = self._op.results[i].name
            labels = axis_labels(self._op, i, len(b.shape), self._attrs)
            if a.shape != b.shape:
                yield Finding("values", f"{name}: {first_difference(a, b, labels)}")
                continue
            if same_bytes(a, b):
                continue
            leaked = np.isnan(as_numbers(a)) & ~np.isnan(as_numbers(b))
            moved = np.isnan(as_numbers(a)) | (as_numbers(a) != as_numbers(b))  # what equals the definition is right
            far = judge.outside(i, a) & moved
            for check, wrong in (("nan", leaked), ("values", far & ~leaked)):
                if wrong.any():
                    yield Finding(check, f"{name}: {first_difference(a, b, labels, wrong)}")

    def _values_elsewhere(self, judge: Judge) -> Iterator[Finding]:
        """Values on other threads and in equivalent calls, for a kernel that promises no bits.

        A kernel that promises bits is compared by its bits there, in `_other_ways`.
        """
        if self._tier >= Tier.INVARIANT:
            return
        ways = tuple((self._op.equivalents or row_equivalents)(self._op, self._inputs))
        sizes = tuple(way for way in ways if way.check == "batch-size")
        others = tuple(way for way in ways if way.check != "batch-size")
        for way in chain(self._on_threads(), sizes, self._some(others, DRAWN_WAYS)):
            try:
                found = list(self._values(way.compute(self._run), judge.arranged(way)))
            except Unsupported as error:
                self._compared.refuse(f"{way.check}, {way.detail}", error)
                continue
            except Exception as error:  # as above
                found = [crash(error)]
            if found:
                yield Finding(found[0].check, f"{way.detail}: {found[0].where}")
                break
        self._backend.set_threads(1)
        yield from dict.fromkeys(self._strays)

    def _on_threads(self) -> Iterator[Equivalent]:
        """The call itself on other numbers of threads, of which each is set when it is reached."""
        for count in self._some(team_sizes(), DRAWN_TEAMS):
            self._backend.set_threads(count)
            yield Equivalent("threads", f"{count} threads", lambda execute: execute(self._inputs))
        self._backend.set_threads(1)

    def _same(
        self,
        check: str,
        detail: str,
        got: tuple[HostTensor, ...],
        want: tuple[HostTensor, ...],
        untouched: tuple[np.ndarray | None, ...] = (),
    ) -> Iterator[Finding]:
        """Yield the first bit that differs. `untouched` are the rows of each result that must keep every byte."""
        for i, (a, b) in enumerate(zip(got, want, strict=True)):
            labels = axis_labels(self._op, i, len(b.shape), self._attrs)
            where = first_difference(a, b, labels, untouched=untouched[i] if untouched else None)
            if where:
                yield Finding(check, f"{self._op.results[i].name} ({detail}): {where}")
                return

    def _other_ways(self, first: tuple[HostTensor, ...], judge: Judge) -> Iterator[Finding]:
        """Teams of threads, and every equivalent call."""
        for way in self._on_threads():
            yield from self._equivalent(way, first, judge)
        seen: set[str] = set()
        ways = self._op.equivalents or row_equivalents
        for way in self._some(tuple(ways(self._op, self._inputs)), DRAWN_WAYS):
            if way.check not in seen:
                for finding in self._equivalent(way, first, judge):
                    seen.add(way.check)
                    yield finding
        yield from dict.fromkeys(self._strays)

    def _some(self, ways: tuple[Way, ...], count: int) -> list[Way]:
        """All of them, or those that were drawn, in their order."""
        if self._dice is None or len(ways) <= count:
            return list(ways)
        return [ways[i] for i in sorted(self._dice.sample(range(len(ways)), count))]

    def _equivalent(
        self, way: Equivalent, first: tuple[HostTensor, ...], judge: Judge | None = None
    ) -> Iterator[Finding]:
        try:
            got = way.compute(self._run)
            self._compared.made(way.check)
            if way.check == "batch-size" and judge is not None:
                for wrong in self._values(got, judge.arranged(way)):
                    yield Finding(wrong.check, f"{way.detail}: {wrong.where}")
            for finding in self._same(way.check, way.detail, got, way.expect(first)):
                # a difference that does not repeat is not the arrangement's fault
                again = way.compute(self._run)
                yield next(self._same("run-to-run", f"{way.detail}, twice", again, got), finding)
        except Unsupported as error:  # lacking a layout breaks no promise about others
            self._compared.refuse(f"{way.check}, {way.detail}", error)
        except Exception as error:  # as above: an equivalent call that raises fails at every tier
            yield crash(error, f"{way.check}, {way.detail}: ")

    def _bits(self, first: tuple[HostTensor, ...], want: tuple[HostTensor, ...]) -> Iterator[Finding]:
        """Bits that differ from the reference's. Where the unfused ops differ from them too, the fusion is at fault.

        A fused op that has the reference's bits is right, whatever its parts do: their own cases blame them.
        """
        self._compared.made("bits")
        records = zip(self._op.active_results(self._inputs, self._attrs), want, strict=True)
        untouched = tuple(untouched_rows(r, self._inputs.get(r.alias_of or ""), result) for r, result in records)
        other = list(self._same("bits", "reference", first, want, untouched))
        yield from other
        if other and self._op.decompose is not None and self._is_float32():
            way = Equivalent("fusion", "unfused", lambda _: self._unfused())
            yield from self._equivalent(way, first)

    def _flushed(self, first: tuple[HostTensor, ...]) -> Iterator[Finding]:
        """Bits that change when subnormals count as zero."""
        if self._backend.flushing_compiles and self._dice is not None:
            self._compared.refused.append("flush: kernels are compiled anew, so only cases with names are compared")
            return
        self._backend.set_threads(team_sizes()[-1])  # the mode must reach every thread of a team
        flushing = self._backend.flushing()
        if flushing is None:
            self._compared.refused.append("flush: this backend cannot be asked to flush subnormals")
            return
        try:
            with flushing:
                yield from self._equivalent(Equivalent("flush", "flushed", lambda run: run(self._inputs)), first)
        except Unsupported as error:  # this device gives no way to enter the mode
            self._compared.refuse("flush", error)

    def _is_float32(self) -> bool:
        """Decompositions round 16-bit activations once more, so they are compared on float32 ones only."""
        stored = [self._inputs[t.name] for t in self._op.inputs if self._inputs.get(t.name) is not None]
        floats = [x for x in stored if isinstance(x, np.ndarray) and x.dtype.kind in "fV"]
        return all(x.dtype == np.float32 for x in floats)

    def _unfused(self) -> tuple[HostTensor, ...]:
        decompose = self._op.decompose
        if decompose is None:
            raise TypeError(f"{self._op.name} has no decomposition")
        results = decompose(OneByOne(self._backend, self._tier), **self._inputs)
        return results if isinstance(results, tuple) else (results,)


class OneByOne:
    """A builder for decompositions that runs every op at once on a backend."""

    def __init__(self, backend: Backend, tier: Tier) -> None:
        self._backend, self._tier = backend, tier

    def __getattr__(self, name: str) -> Any:
        from samebits.ops import OPS

        op = OPS[name]

        def run(*args: Any, **kwargs: Any) -> Any:
            named = {**dict(zip((t.name for t in op.inputs), args, strict=False)), **kwargs}
            results = execute(self._backend, op, named, self._tier).results
            return results[0] if len(results) == 1 else results

        return run
