"""A model's step: the arrays it reads, declared once, and the one place that lays them out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from samebits.core.shapes import Sym, TensorSpec

NO_PAGES: Mapping[int, np.ndarray] = {}
PAGES = "kv_indices"


@dataclass(frozen=True)
class StepInput:
    """An int32 array: the symbol of its length, and what stands behind its end where a step is padded.

    padding  a number; "last", the array's last value again; or "open": its end is known from another array
    """

    name: str
    symbol: Literal["T", "B", "NI", "R"]
    padding: int | Literal["last", "open"]
    plus: int = 0

    def spec(self, limits: Mapping[str, int]) -> TensorSpec:
        """The array with the largest size of its symbol."""
        return TensorSpec((Sym(self.symbol, limits[self.symbol], plus=self.plus),), "i32")


INPUTS = (
    StepInput("token_ids", "T", -1),
    StepInput("positions", "T", -1),
    StepInput("batch_indices", "T", -1),
    StepInput("out_rows", "R", -1),
    StepInput("qo_indptr", "B", "last", plus=1),
    StepInput("kv_indptr", "B", "last", plus=1),
    StepInput(PAGES, "NI", "open"),
    StepInput("kv_last_page_len", "B", 0),
)
SLOTS = StepInput("slots", "B", -1)  # of models that keep states in slots, and of no other


def pages_name(window: int | None) -> str:
    """The array of the pages of layers that look back over so many positions; None for those of the first group."""
    return PAGES if window is None else f"{PAGES}.{window}"


def declared(name: str) -> StepInput | None:
    """The declaration of a step's array; those of further groups of pages are filled up with page 0."""
    if name.startswith(f"{PAGES}."):
        return StepInput(name, "NI", 0)
    return next((i for i in (*INPUTS, SLOTS) if i.name == name), None)


def step_specs(limits: Mapping[str, int], windows: Iterable[int] = ()) -> dict[str, TensorSpec]:
    """The arrays of a step by name, with the largest size of each symbol; `windows` of further groups of pages."""
    further = [StepInput(pages_name(window), "NI", 0) for window in windows]
    return {i.name: i.spec(limits) for i in (*INPUTS, *further)}


@dataclass(frozen=True, eq=False)
class StepBatch:
    """What a model's step reads: int32 arrays over T tokens and B sequences."""

    token_ids: np.ndarray  # [T]
    positions: np.ndarray  # [T]
    batch_indices: np.ndarray  # [T]
    out_rows: np.ndarray  # [R], tokens whose logits are wanted
    qo_indptr: np.ndarray  # [B+1]
    kv_indptr: np.ndarray  # [B+1]
    kv_indices: np.ndarray  # [NI]
    kv_last_page_len: np.ndarray  # [B]
    slots: np.ndarray  # [B], where each sequence keeps what is not in pages
    window_indices: Mapping[int, np.ndarray] = field(default_factory=dict, kw_only=True)  # [NI] by window

    def array(self, name: str) -> np.ndarray:
        """One of them by the name of the graph's input."""
        if name.startswith(f"{PAGES}."):
            return self.window_indices[int(name.removeprefix(f"{PAGES}."))]
        found: np.ndarray = getattr(self, name)
        return found

    def arrays(self) -> dict[str, np.ndarray]:
        """All of them."""
        further = [pages_name(window) for window in self.window_indices]
        return {name: self.array(name) for name in (*(i.name for i in INPUTS), SLOTS.name, *further)}


def lay_out(
    token_ids: np.ndarray,
    starts: np.ndarray,
    counts: np.ndarray,
    out_rows: np.ndarray,
    page_size: int,
    tables: np.ndarray,
    rows: np.ndarray,
    window_tables: Mapping[int, np.ndarray] = NO_PAGES,
) -> StepBatch:
    """The step in which sequence i computes counts[i] tokens from position starts[i] on.

    token_ids   int32 [T], the sequences' tokens one after another
    out_rows    int32 [R]
    tables      int32 [S, width], page tables; rows[i] is that of sequence i, and its slot
    """
    qo_indptr, owners, inside = ranges(counts)
    lengths = starts + counts
    kv_indptr, page_owners, page_inside = ranges(-(-lengths // page_size))
    page_rows = rows[page_owners]
    return StepBatch(
        token_ids=token_ids,
        positions=(starts[owners] + inside).astype(np.int32, copy=False),
        batch_indices=owners,
        out_rows=out_rows,
        qo_indptr=qo_indptr,
        kv_indptr=kv_indptr,
        kv_indices=gather(tables, page_rows, page_inside),
        kv_last_page_len=((lengths - 1) % page_size + 1).astype(np.int32, copy=False),
        slots=rows.astype(np.int32, copy=False),
        window_indices={window: gather(t, page_rows, page_inside) for window, t in window_tables.items()},
    )


def ranges(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(indptr [B+1], owner of each element, its number inside its range) of B ranges one after another."""
    indptr = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=indptr[1:])
    owners = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
    return indptr, owners, np.arange(indptr[-1], dtype=np.int32) - indptr[owners]


def gather(table: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """table[rows, columns] of a contiguous table, in a third of the time."""
    return table.reshape(-1).take(rows.astype(np.int64) * table.shape[1] + columns)
