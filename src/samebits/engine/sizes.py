"""How large a model's step and its memory are: the one place where `Limits` follow from the settings.

A device's memory is divided into weights, the workspace of a step, and pages of keys and values. All sizes follow from
a model's metadata, so `samebits inspect --memory` shows the division before anything is loaded.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from samebits.backends.discovery import Found
from samebits.backends.interface import Backend, Memory, Workspace
from samebits.core.errors import BadInput, OutOfMemory, Unavailable
from samebits.core.shapes import TensorSpec
from samebits.engine.drafts.pace import pace_of
from samebits.engine.settings import DEFAULT_MEMORY, EngineSettings
from samebits.models.checkpoint import Checkpoint, build_step
from samebits.models.parts import Limits
from samebits.models.parts.builder import state_specs
from samebits.models.parts.state import Paged, Slot
from samebits.scheduler import Policy

MIN_PREFILL_TOKENS = 128  # prompt tokens that a step takes beside any number of decodes
MAX_PAGES = 1 << 20  # their bookkeeping is on the host
USEFUL_TOKENS = 512  # pages that a sequence has at least, before more sequences run at once
TABLE_SHARE = 1  # of the pages' bytes, for workspace that grows with sequences times context
USEFUL_CONTEXT = 32768  # a longer context gets no pages at the cost of sequences, unless it is asked for
HOST_SHARE = 0.25  # of free host memory, for pages, at DEFAULT_MEMORY: other programs need the rest
UNKNOWN_HOST_BYTES = 4 << 30  # where the system does not say how much memory there is
WEIGHT_TOLERANCE = 0.02  # of the budget: allocators round, and a step that is compiled again takes longer to start
OUT_OF_MEMORY_STEP = 0.85  # of the pages that are left after an allocation failed


def policy_for(settings: EngineSettings, found: Found) -> Policy:
    """Return the budgets of steps on a backend. Raise BadInput for an invalid prefill budget."""
    step_tokens = settings.max_batch_tokens or (found.backend or Backend).step_tokens
    return Policy(
        settings.prefill_budget,
        step_tokens,
        min(MIN_PREFILL_TOKENS, step_tokens),
        draft_batch_tokens=pace_of(found.name).batch_tokens,
    )


class ModelNeeds:
    """The bytes that a model takes on a backend, by the sizes of its caches.

    weight_bytes   without rotary tables
    position_bytes of rotary tables, for each position
    workspace      of a step
    """

    def __init__(self, checkpoint: Checkpoint, backend: Backend, limits: Limits) -> None:
        """limits: sizes of the largest step; the numbers of pages and positions do not matter."""
        step = build_step(checkpoint, limits)
        ropes, kinds = checkpoint.config.ropes, step.graph.kinds
        weights = [v for v in step.graph.inputs if kinds.get(v.name) == "weight" and v.name not in ropes]
        self.weight_bytes = sum(backend.stored_bytes(v.spec) for v in weights)
        self.position_bytes = sum(4 * rope.dims for rope in ropes.values())
        self.workspace: Workspace = backend.workspace(step.graph)
        self._backend, self._windows = backend, step.windows
        self._states: Counter[Paged | Slot] = Counter(step.states.values())

    def slot_bytes(self, limits: Limits) -> int:
        """Return the bytes of states in slots."""
        return self._bytes(limits, Slot)

    def page_bytes(self, limits: Limits) -> int:
        """Return the bytes of all pages, those of layers with windows included."""
        return self._bytes(limits, Paged)

    def largest_tensor(self, limits: Limits) -> int:
        """Return the bytes of the largest tensor of pages or slots."""
        return max(
            (self._backend.stored_bytes(s) for state in self._states for s in self._specs(state, limits)), default=0
        )

    def num_bytes(self, limits: Limits) -> int:
        """Return the bytes of everything that grows with the number of pages."""
        tables = self.position_bytes * limits.max_positions + self.workspace.bytes_per_entry * limits.max_table_entries
        return self.page_bytes(limits) + tables

    def _bytes(self, limits: Limits, kind: type[Paged | Slot]) -> int:
        return sum(
            count * self._backend.stored_bytes(spec)
            for state, count in self._states.items()
            if isinstance(state, kind)
            for spec in self._specs(state, limits)
        )

    def _specs(self, state: Paged | Slot, limits: Limits) -> tuple[TensorSpec, ...]:
        return state_specs(state, limits, self._windows)


@dataclass(frozen=True)
class Division:
    """A device's memory divided among what a model takes.

    memory        of the device, before the model was loaded
    budget_bytes  for all of the model
    limits        sizes of steps and caches that follow
    notes         a sentence for each size that is lower than the model or the caller asked for
    needs         of the model, and of a smaller one that drafts
    min_context_len  the context that the caller stated, which is never lowered; 1 if none
    """

    memory: Memory
    budget_bytes: int
    limits: Limits
    needs: tuple[ModelNeeds, ...] = field(repr=False, compare=False)
    is_page_count_stated: bool = False
    notes: tuple[str, ...] = ()
    min_context_len: int = 1

    @property
    def context_len(self) -> int:
        """The most tokens that a sequence may have."""
        return context_of(self.limits)

    @property
    def weight_bytes(self) -> int:
        """Bytes of weights, rotary tables included."""
        return sum(n.weight_bytes + n.position_bytes * self.limits.max_positions for n in self.needs)

    @property
    def workspace_bytes(self) -> int:
        """Bytes of a step's values and scratch memory."""
        entries = self.limits.max_table_entries
        return sum(n.workspace.num_bytes + n.workspace.bytes_per_entry * entries for n in self.needs)

    @property
    def page_bytes(self) -> int:
        """Bytes of pages."""
        return sum(n.page_bytes(self.limits) for n in self.needs)

    @property
    def slot_bytes(self) -> int:
        """Bytes of states in slots, which recurrent layers have."""
        return sum(n.slot_bytes(self.limits) for n in self.needs)

    def as_json(self) -> dict[str, object]:
        """Return all figures by name."""
        return {
            "total_bytes": self.memory.total_bytes,
            "free_bytes": self.memory.free_bytes,
            "budget_bytes": self.budget_bytes,
            "weight_bytes": self.weight_bytes,
            "workspace_bytes": self.workspace_bytes,
            "page_bytes": self.page_bytes,
            "slot_bytes": self.slot_bytes,
            "num_pages": self.limits.num_pages,
            "page_size": self.limits.page_size,
            "max_sequences": self.limits.max_sequences,
            "context_len": self.context_len,
            "notes": list(self.notes),
        }

    def line(self) -> str:
        """Return the division in a line for people."""
        limits = self.limits
        parts = [f"weights {sized(self.weight_bytes)}", f"workspace {sized(self.workspace_bytes)}"]
        if self.slot_bytes:
            parts.append(f"states {sized(self.slot_bytes)}")
        tokens = (limits.num_pages - 1) * limits.page_size
        parts.append(f"pages {sized(self.page_bytes)} for {tokens:,} tokens")
        used = f"up to {limits.max_sequences} sequences, context {self.context_len:,}"
        return f"memory {sized(self.budget_bytes)} of {sized(self.memory.total_bytes)}: {', '.join(parts)}; {used}"

    def with_free(self, free_bytes: int) -> Division:
        """Return the division after weights were loaded, with fewer pages if they took far more than was expected."""
        spared = max(0, self.memory.free_bytes - self.budget_bytes)
        room = free_bytes - spared - self.workspace_bytes - self.slot_bytes
        if self.page_bytes <= room + int(WEIGHT_TOLERANCE * self.budget_bytes):
            return self
        return self._with_pages(self._most_pages(room), "weights take more than their file")

    def with_fewer_pages(self) -> Division:
        """Return the division to try after the device has run out of memory. Raise OutOfMemory if no page is left."""
        return self._with_pages(int((self.limits.num_pages - 1) * OUT_OF_MEMORY_STEP) + 1, "out of memory")

    def _most_pages(self, room: int) -> int:
        def excess(num_pages: int) -> int:
            return sum(n.page_bytes(replace(self.limits, num_pages=num_pages)) for n in self.needs) - room

        return bisect_left(range(2, self.limits.num_pages + 1), 1, key=excess) + 1

    def _with_pages(self, num_pages: int, reason: str) -> Division:
        is_too_few = (num_pages - 1) * self.limits.page_size < self.min_context_len
        if self.is_page_count_stated or is_too_few or num_pages >= self.limits.num_pages:
            raise OutOfMemory(
                f"{self.limits.num_pages} pages of {self.limits.page_size} tokens do not fit into memory "
                f"({sized(self.page_bytes)}); choose fewer --num-pages, a shorter --ctx-size or a smaller model"
            )
        limits = replace(self.limits, num_pages=num_pages)
        note = f"{reason}: pages lowered from {self.limits.num_pages:,} to {num_pages:,}"
        if context_of(limits) < self.context_len:
            note += f", context from {self.context_len:,} to {context_of(limits):,} tokens"
        return replace(self, limits=limits, notes=(*self.notes, note))


def context_of(limits: Limits) -> int:
    """Return the most tokens of a sequence, whose pages are all but the first one."""
    return min(limits.max_positions, (limits.num_pages - 1) * limits.page_size)


def sized(num_bytes: int) -> str:
    """Return a number of bytes for people."""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20)):
        if num_bytes >= size:
            return f"{num_bytes / size:,.1f} {unit}"
    return f"{num_bytes / 1024:,.0f} KiB"


def divide(
    checkpoint: Checkpoint,
    found: Found,
    settings: EngineSettings,
    policy: Policy,
    drafting: Checkpoint | None = None,
) -> Division:
    """Divide a device's memory for a model, and for a smaller one that drafts.

    Raise BadInput for a context beyond the model's, OutOfMemory if the settings cannot be kept or no page fits.
    """
    if found.backend is None:
        raise Unavailable(found.reason)
    return Divider(checkpoint, found.backend, settings, policy, drafting).division()


class Divider:
    """Searches the sizes of a division: the most sequences that get enough pages, and the most pages."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        backend: Backend,
        settings: EngineSettings,
        policy: Policy,
        drafting: Checkpoint | None,
    ) -> None:
        config = checkpoint.config
        self._settings, self._policy, self._switch_lens = settings, policy, config.switch_lens
        if settings.context_len is not None and settings.context_len > config.context_len:
            raise BadInput("LLM", "context_len", settings.context_len, f"at most {config.context_len}, the model's own")
        self._context = settings.context_len or config.context_len
        self._most_sequences = settings.max_sequences or backend.default_sequences
        self._memory, stated = backend.memory(), settings.memory_limit
        self._limit = stated if isinstance(stated, int) else None  # bytes for the model in all
        self._fraction = stated if isinstance(stated, float) else DEFAULT_MEMORY
        probe = self._limits(self._most_sequences, 2)
        models = (checkpoint,) if drafting is None else (checkpoint, drafting)
        self._needs = tuple(ModelNeeds(model, backend, probe) for model in models)
        self._fixed = sum(n.weight_bytes + n.workspace.num_bytes for n in self._needs)
        self._budget = self._budget_bytes()

    def division(self) -> Division:
        """Return the division."""
        stated = self._settings.num_pages
        sequences, num_pages = self._searched() if stated is None else self._stated(stated)
        limits = self._limits(sequences, num_pages)
        notes = []
        if (length := context_of(limits)) < self._context:
            if stated is None:
                limits = self._limits(sequences, num_pages, rounded_down(length))
                length = context_of(limits)  # not round where rotary tables must keep their length
            reason = "--num-pages" if stated is not None else "what memory has room for"
            notes.append(f"context lowered from {self._context:,} to {length:,} tokens: {reason}")
        is_stated = stated is not None
        least = self._settings.context_len or 1
        return Division(self._memory, self._budget, limits, self._needs, is_stated, tuple(notes), least)

    def _limits(self, max_sequences: int, num_pages: int, length: int | None = None) -> Limits:
        """Return the limits. Rotary tables are as long as sequences can be, unless their angles depend on that."""
        s = self._settings
        length = min(length or self._context, (num_pages - 1) * s.page_size)
        return Limits(
            max_tokens=self._policy.max_step_tokens(max_sequences),
            max_sequences=max_sequences,
            num_pages=num_pages,
            page_size=s.page_size,
            max_positions=self._context if self._switch_lens else length,
            k_format=s.k_format,
            v_format=s.v_format,
        )

    def _budget_bytes(self) -> int:
        """Return the bytes that the model may take in all."""
        total, free = self._memory.total_bytes or UNKNOWN_HOST_BYTES, self._free_bytes()
        if (limit := self._limit) is not None:
            return limit if self._memory.is_host else min(limit, free)
        return min(int(self._fraction * total), free)

    def _free_bytes(self) -> int:
        """Return the bytes that are free. A device that does not say how many it has in all does not say this."""
        return self._memory.free_bytes if self._memory.total_bytes else UNKNOWN_HOST_BYTES

    def _room(self, max_sequences: int) -> int:
        """Return the bytes for pages and what grows with them."""
        room = self._budget - self._fixed - self._slot_bytes(max_sequences)
        if self._memory.is_host and self._limit is None and self._settings.num_pages is None:
            free = self._free_bytes() - self._fixed
            room = min(room, int(HOST_SHARE * self._fraction / DEFAULT_MEMORY * free))
        return room

    def _slot_bytes(self, max_sequences: int) -> int:
        return sum(n.slot_bytes(self._limits(max_sequences, 2)) for n in self._needs)

    def _table_bytes(self, max_sequences: int, num_pages: int) -> int:
        """Return the workspace that grows with page tables, which have an entry for each page of each sequence."""
        entries = self._limits(max_sequences, num_pages).max_table_entries
        return sum(n.workspace.bytes_per_entry for n in self._needs) * entries

    def _page_bytes(self, max_sequences: int, num_pages: int) -> int:
        return sum(n.page_bytes(self._limits(max_sequences, num_pages)) for n in self._needs)

    def _num_bytes(self, max_sequences: int, num_pages: int) -> int:
        return sum(n.num_bytes(self._limits(max_sequences, num_pages)) for n in self._needs)

    def _useful_pages(self, max_sequences: int) -> int:
        """Return the largest number of pages that sequences can use, the first one included."""
        return min(1 + max_sequences * -(-self._context // self._settings.page_size), MAX_PAGES)

    def _most_pages(self, max_sequences: int, most: int) -> int:
        """Return the largest number of pages up to `most` that fits, the first one included; 1 if none fits."""
        room = self._room(max_sequences)
        largest = self._memory.max_tensor_bytes

        def is_too_many(num_pages: int) -> bool:
            if largest is not None:
                limits = self._limits(max_sequences, num_pages)
                if any(n.largest_tensor(limits) > largest for n in self._needs):
                    return True
            return self._num_bytes(max_sequences, num_pages) > room

        return bisect_left(range(2, most + 1), True, key=is_too_many) + 1

    def _searched(self) -> tuple[int, int]:
        """Return (sequences, pages) where no number of pages is stated: the most sequences with enough pages."""
        page_size, stated = self._settings.page_size, self._settings.max_sequences
        is_context_stated = self._settings.context_len is not None
        context = self._context if is_context_stated else min(self._context, USEFUL_CONTEXT)
        candidates = [stated] if stated is not None else halved(self._most_sequences)
        tried = [(count, self._most_pages(count, self._useful_pages(count))) for count in candidates]
        with_enough = [
            (sequences, num_pages)
            for sequences, num_pages in tried
            if (num_pages - 1) * page_size >= sequences * min(USEFUL_TOKENS, self._context)
            and self._table_bytes(sequences, num_pages) <= self._page_bytes(sequences, num_pages) * TABLE_SHARE
        ]
        for sequences, num_pages in with_enough:
            if (num_pages - 1) * page_size >= context:
                return sequences, num_pages
        sequences, num_pages = tried[-1]
        if num_pages < 2:
            raise self._too_small(sequences)
        if is_context_stated and (num_pages - 1) * page_size < context:
            whole = self._limits(sequences, 1 + -(-context // page_size))
            raise OutOfMemory(
                f"context_len {context:,} needs {sized(sum(n.page_bytes(whole) for n in self._needs))} of pages; "
                f"{sized(max(0, self._room(sequences)))} are left beside the model, which is room for "
                f"{(num_pages - 1) * page_size:,} tokens"
            )
        return with_enough[0] if with_enough else (sequences, num_pages)

    def _stated(self, num_pages: int) -> tuple[int, int]:
        """Return (sequences, pages) for a stated number of pages. Raise OutOfMemory if they do not fit."""
        sequences = self._settings.max_sequences or max(1, min(self._most_sequences, num_pages - 1))
        needed, room = self._num_bytes(sequences, num_pages), self._room(sequences)
        if needed > room:
            most = self._most_pages(sequences, num_pages)
            raise OutOfMemory(
                f"num_pages {num_pages:,} needs {sized(needed)}; {sized(max(0, room))} are left beside the model, "
                f"which is room for {most if most > 1 else 0:,}"
            )
        return sequences, num_pages

    def _too_small(self, max_sequences: int) -> OutOfMemory:
        weights, states = sum(n.weight_bytes for n in self._needs), self._slot_bytes(max_sequences)
        kept = f", states of {max_sequences} sequences {sized(states)}" if states else ""
        needed = "a smaller model" + (", fewer --max-sequences" if states and self._settings.max_sequences else "")
        needed += ", fewer --max-batch-tokens" if self._settings.max_batch_tokens else ""
        return OutOfMemory(
            f"no page fits: weights take {sized(weights)}{kept} and workspace {sized(self._fixed - weights)} of the "
            f"{sized(self._budget)} for this model ({sized(self._memory.free_bytes)} are free); "
            f"needs {needed} or a larger --memory"
        )


def halved(count: int) -> Sequence[int]:
    """Return the number, half of it, and so on down to 1."""
    return [count >> n for n in range(count.bit_length())]


def rounded_down(num_tokens: int) -> int:
    """Return the largest 2^n or 3 * 2^n up to a number of tokens: free memory varies, and contexts need not."""
    power = 1 << (num_tokens.bit_length() - 1)
    return power + power // 2 if num_tokens >= power + power // 2 else power
