"""A model on a backend: its compiled step, its weights and its caches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from samebits.backends.discovery import Found
from samebits.backends.interface import Backend, Buffer, Executable
from samebits.cache import PageCopy, SlotCopy
from samebits.core.errors import BadInput, OutOfMemory, Unavailable
from samebits.core.shapes import Sym, TensorSpec, upper
from samebits.core.step import StepBatch, lay_out
from samebits.core.tiers import Tier
from samebits.engine.copier import PageCopier, SlotCopier
from samebits.engine.plan import BackendPlan, compile_plan, make_plan, weight_packers
from samebits.engine.sizes import Division, context_of
from samebits.engine.weights import Progress, upload
from samebits.models.checkpoint import Checkpoint, build_step
from samebits.models.parts import Limits
from samebits.models.parts.state import tensor_groups
from samebits.receipts.chain import row_digest, row_digests

MAX_TRIAL_TOKENS = 256  # as many as a captured step may have, backends/gpu/feeding.py


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

    limits      sizes of steps and caches; where `division` gave them they may be lower than at the start, see there
    division    how the device's memory is divided, if it is
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
        division: Division | None = None,
    ) -> None:
        """division: the one that gave `limits`. With it, pages are lowered until they fit beside the weights."""
        if found.backend is None:
            raise Unavailable(found.reason)
        self.backend, self.found, self.division = found.backend, found, division
        self.context_len, self.switch_lens = checkpoint.config.context_len, checkpoint.config.switch_lens
        self._asked_tier = Tier.asked(numerics) if numerics else None
        if threads is not None:
            self.backend.limit_threads(threads)
        plan = self._compile(checkpoint, limits)
        packers = weight_packers(self.backend, plan.graph, plan.placement, plan.tier)
        self._weights = upload(self.backend, checkpoint, self._specs("weight"), plan.graph.joined, packers, progress)
        if division is not None and not division.memory.is_host:
            self.backend.trim()
            self._take(checkpoint, division.with_free(self.backend.memory().free_bytes))
        while not self._has_caches():
            self._lower(checkpoint)

    def _compile(self, checkpoint: Checkpoint, limits: Limits) -> BackendPlan:
        """Compile the step for these limits. Nothing is bound to it yet."""
        step = build_step(checkpoint, limits)
        plan = make_plan(self.found, step.graph, self._asked_tier)
        self.limits = limits
        self.tier, self.graph, self.fallbacks = plan.tier, plan.graph, plan.placement.reasons
        self.vocab_size = upper(self.graph.outputs[0].spec.shape[1])
        self.windows, self.has_slots = step.windows, bool(step.slot_tensors)
        self._executable = compile_plan(self.backend, plan)
        self._executable.compile_ahead()  # beside the loading of weights
        self._steps = self._specs("step")
        self._step_buffers: dict[str, Buffer] = {}  # as long as the last step's; most steps are like the one before
        self._groups = tensor_groups(step.states, step.windows)
        self._slot_tensors = step.slot_tensors, step.resumable_tensors
        return plan

    def _specs(self, kind: str) -> dict[str, TensorSpec]:
        """Return the graph's inputs of a kind: "step", "weight" or "cache"."""
        return {v.name: v.spec for v in self.graph.inputs if self.graph.kinds.get(v.name, "step") == kind}

    def _has_caches(self) -> bool:
        """Allocate the caches and bind all memory. Return False if the device lacks it and there may be fewer pages."""
        self._caches: dict[str, Buffer] = {}
        self._copier: PageCopier | None = None
        self._slot_copier: SlotCopier | None = None
        try:
            for name, spec in self._specs("cache").items():
                self._caches[name] = self.backend.alloc(spec, self._executable.layout(name))
        except OutOfMemory:
            if self.division is None:
                raise
            return False
        for name, buffer in (*self._weights.items(), *self._caches.items()):
            self._executable.bind(name, buffer)
        if self.backend.compiles_kernels:  # elsewhere it is made with the first fork
            self._copier = PageCopier(self.backend, self.tier, self._caches, self._groups)
        if self.has_slots:
            self._slot_copier = SlotCopier(self.backend, self.tier, self._caches, *self._slot_tensors)
        return True

    def _take(self, checkpoint: Checkpoint, division: Division) -> None:
        """Compile the step again if the division has another number of pages. Its caches are to be made."""
        self.division = division
        if division.limits != self.limits:
            self._compile(checkpoint, division.limits)

    def _lower(self, checkpoint: Checkpoint) -> None:
        """Free the caches, and compile the step for fewer pages. Raise OutOfMemory if no page is left to give up."""
        if self.division is None:
            raise OutOfMemory(f"{self.limits.num_pages} pages do not fit")
        division = self.division.with_fewer_pages()
        self._caches.clear()
        self._copier = self._slot_copier = None
        self._take(checkpoint, division)
        self.backend.trim()

    def reserve(self, checkpoint: Checkpoint) -> bool:
        """Allocate what steps keep on the device, such as captured graphs, with fewer pages if memory runs out.

        Return whether `limits` are lower than before. The caches' contents are lost.
        """
        before = self.limits
        while True:
            try:
                arrays = self._arrays(self._trial())
                self._executable.reserve(arrays)
                return self.limits != before
            except OutOfMemory:
                if self.division is None:
                    raise
            self._lower(checkpoint)
            while not self._has_caches():
                self._lower(checkpoint)

    def _trial(self) -> StepBatch:
        """Return the largest step that a device may capture: a prompt at the start of the first pages."""
        limits = self.limits
        count = min(MAX_TRIAL_TOKENS, limits.max_tokens, context_of(limits))
        table = np.arange(1, 1 + -(-count // limits.page_size), dtype=np.int32)[None, :]
        return lay_out(
            token_ids=np.zeros(count, np.int32),
            starts=np.zeros(1, np.int32),
            counts=np.array([count], np.int32),
            out_rows=np.array([count - 1], np.int32),
            page_size=limits.page_size,
            tables=table,
            rows=np.zeros(1, np.int32),
            window_tables={window: table for window in self.windows if window is not None},
        )

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
        arrays = self._arrays(batch)
        if not self._executable.feed(arrays):
            self._bind(arrays)
        self._executable.run()
        return StepResult(self.backend, self._executable)

    def _arrays(self, batch: StepBatch) -> dict[str, np.ndarray]:
        return {name: np.ascontiguousarray(batch.array(name), np.int32) for name in self._steps}

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
