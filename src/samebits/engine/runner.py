"""A model on a backend: its compiled step, its weights and its caches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from samebits.backends.discovery import Found
from samebits.backends.interface import Backend, Buffer, Executable
from samebits.cache import PageCopy, SlotCopy
from samebits.core.errors import BadInput, Unavailable
from samebits.core.shapes import Sym, TensorSpec, upper
from samebits.core.step import StepBatch
from samebits.core.tiers import Tier
from samebits.engine.copier import PageCopier, SlotCopier
from samebits.engine.plan import compile_plan, make_plan, weight_packers
from samebits.engine.weights import Progress, upload
from samebits.models.checkpoint import Checkpoint, build_step
from samebits.models.parts import Limits
from samebits.models.parts.state import tensor_groups
from samebits.receipts.chain import row_digest, row_digests


class StepResult:
    """What a step computes, perhaps still does; host copies are made when asked for and hold until the next step."""

    def __init__(self, backend: Backend, executable: Executable) -> None:
        """executable: its outputs are the logits and the hidden states."""
        self._backend, self._executable = backend, executable
        self._digests: dict[int, bytes] = {}

    @cached_property
    def on_device(self) -> Buffer:
        """The logits, where they are."""
        return self._executable.output(0)

    @cached_property
    def logits(self) -> np.ndarray:
        """float32 [R, vocab]."""
        return np.asarray(self._backend.peek(self.on_device))

    @cached_property
    def hidden(self) -> np.ndarray:
        """float32 [R, hidden], after the last norm."""
        return np.asarray(self._backend.peek(self._executable.output(1)))

    def row(self, index: int) -> LogitsRow:
        """One row of the logits."""
        return LogitsRow(self, index)

    def hash_rows(self, indices: Sequence[int]) -> None:
        """Computes the digests of some rows ahead, on threads."""
        self._digests |= zip(indices, row_digests(self.logits[i] for i in indices), strict=True)

    def digest_of(self, index: int) -> bytes:
        """SHA-256 of a row."""
        known = self._digests.get(index)
        return row_digest(self.logits[index]) if known is None else known

    def wait(self) -> None:
        """Returns when the step is done; BadInput where a kernel met a value it refuses."""
        self._backend.sync()


class LogitsRow(NamedTuple):
    """The logits that a token was drawn from; they come to the host when asked for."""

    result: StepResult
    number: int

    def values(self) -> np.ndarray:
        """float32 [vocab]."""
        return self.result.logits[self.number]

    def digest(self) -> bytes:
        """SHA-256 of the values."""
        return self.result.digest_of(self.number)


class Runner:
    """Executes steps. Caches stay on the device between them; pages are the caller's to assign.

    windows     of the groups of layers that share page tables, in the order of a step's groups; None: all positions
    has_slots   whether the model keeps states in slots, which are the caller's to assign too
    context_len  tokens that the model itself allows
    switch_lens  numbers of positions beyond which the model's rotary tables have other angles
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        found: Found,
        limits: Limits,
        numerics: str | None = None,
        progress: Progress | None = None,
        threads: int | None = None,
    ) -> None:
        if found.backend is None:
            raise Unavailable(found.reason)
        step = build_step(checkpoint, limits)
        plan = make_plan(found, step.graph, Tier.parse(numerics) if numerics else None)
        self.backend, self.limits = found.backend, limits
        self.context_len, self.switch_lens = checkpoint.config.context_len, checkpoint.config.switch_lens
        if threads is not None:
            self.backend.limit_threads(threads)
        self.tier, self.graph, self.fallbacks = plan.tier, plan.graph, plan.placement.reasons
        self.found, self.vocab_size = found, upper(self.graph.outputs[0].spec.shape[1])
        self.windows, self.has_slots = step.windows, bool(step.slot_tensors)
        self._executable = compile_plan(self.backend, plan)
        self._executable.compile_ahead()  # beside the loading of weights
        specs: dict[str, dict[str, TensorSpec]] = {"step": {}, "weight": {}, "cache": {}}
        for value in self.graph.inputs:
            specs[self.graph.kinds.get(value.name, "step")][value.name] = value.spec
        self._steps = specs["step"]
        self._step_buffers: dict[str, Buffer] = {}  # as long as the last step's; most steps are like the one before
        packers = weight_packers(self.backend, self.graph, plan.placement, self.tier)
        weights = upload(self.backend, checkpoint, specs["weight"], self.graph.joined, packers, progress)
        for name, buffer in weights.items():
            self._executable.bind(name, buffer)
        self._caches = {
            name: self.backend.alloc(spec, self._executable.layout(name)) for name, spec in specs["cache"].items()
        }
        for name, buffer in self._caches.items():
            self._executable.bind(name, buffer)
        self._groups = tensor_groups(step.states, step.windows)
        self._copier: PageCopier | None = None
        if self.backend.compiles_kernels:  # elsewhere it is made with the first fork
            self._copier = PageCopier(self.backend, self.tier, self._caches, self._groups)
        slots = step.slot_tensors, step.resumable_tensors
        self._slot_copier = SlotCopier(self.backend, self.tier, self._caches, *slots) if self.has_slots else None

    def rotation(self, max_positions: int) -> int:
        """Return which angles the rotary tables have in a model opened for `max_positions`, as a number."""
        return sum(max_positions > n for n in self.switch_lens)

    def copy_pages(self, copies: Sequence[PageCopy]) -> None:
        """Writes pages' contents onto others, in the caches of all layers."""
        if not copies:
            return
        if self._copier is None:  # most runs never fork
            self._copier = PageCopier(self.backend, self.tier, self._caches, self._groups)
        self._copier.copy(copies)

    def copy_slots(self, copies: Sequence[SlotCopy]) -> None:
        """Writes slots' contents onto others, one copy after another."""
        if self._slot_copier is not None:
            self._slot_copier.copy(copies)

    def run(self, batch: StepBatch) -> StepResult:
        """Starts one step; BadInput when it is larger than the graph was built for."""
        arrays = {name: np.ascontiguousarray(batch.array(name), np.int32) for name in self._steps}
        if not self._executable.feed(arrays):
            self._bind(arrays)
        self._executable.run()
        return StepResult(self.backend, self._executable)

    def _bind(self, arrays: Mapping[str, np.ndarray]) -> None:
        """A step's arrays one by one, in buffers that fit them."""
        dims = {}
        for name, spec in self._steps.items():
            array = arrays[name]
            dim = spec.shape[0]
            if isinstance(dim, Sym):
                if len(array) > dim.upper:
                    raise BadInput("step", name, f"{len(array)} entries", f"at most {dim.upper}")
                dims[dim.name] = (len(array) - dim.plus) // dim.factor
            buffer = self._step_buffers.get(name)
            if buffer is None or buffer.spec.shape != array.shape:
                self._step_buffers.pop(name, None)  # kept only while it is bound, whenever an interrupt comes
                buffer = self.backend.alloc(TensorSpec(array.shape, "i32"))
                self._executable.bind(name, buffer)
                self._step_buffers[name] = buffer
            self.backend.copy_in(buffer, array)
        self._executable.prepare(dims)
