"""Scores and stored cells that are not finite: every native attention kernel does what the definition does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from samebits.backends.cpu import CpuBackend
from samebits.backends.one_op import OneOp, cache_kinds
from samebits.core.errors import BadInput, Unavailable
from samebits.core.format import HostTensor, Packed, copy_tensor
from samebits.core.tiers import Tier
from samebits.kernels.cpp import native
from samebits.ops import OPS, bind, evaluate
from samebits.ops.cases import in_format

try:
    native()
except Unavailable as error:
    pytest.skip(str(error), allow_module_level=True)

OP = OPS["paged_attention"]
PAGE, SIZE, QUERY = 16, 64, 100.0
SCALE = 1e33  # a key of 600 in all elements then overflows, one of 0.5 does not
Change = Callable[[np.ndarray], None]


def at(position: int, value: float) -> Change:
    """All elements of one key."""

    def change(keys: np.ndarray) -> None:
        keys[position] = value

    return change


def everywhere(value: float) -> Change:
    def change(keys: np.ndarray) -> None:
        keys[...] = value

    return change


def both(keys: np.ndarray) -> None:
    keys[3], keys[4] = 600, -600


def one_cell(position: int, value: float) -> Change:
    """One element, as append would not have stored it."""

    def change(cells: np.ndarray) -> None:
        cells[position, 5] = value

    return change


def left(cells: np.ndarray) -> None:
    """As they are."""


SCORES: dict[str, tuple[Change, Change, dict[str, Any]]] = {
    "one is -Inf": (at(3, -600), left, {"sm_scale": SCALE}),
    "all are -Inf": (everywhere(-600), left, {"sm_scale": SCALE}),
    "one is +Inf": (at(3, 600), left, {"sm_scale": SCALE}),
    "-Inf and +Inf": (both, left, {"sm_scale": SCALE}),
    "-Inf below a cap": (at(3, -600), left, {"sm_scale": SCALE, "logits_soft_cap": 30.0}),
    "+Inf below a cap": (at(3, 600), left, {"sm_scale": SCALE, "logits_soft_cap": 30.0}),
    "+Inf outside the window": (at(0, 600), left, {"sm_scale": SCALE, "window_left": 7}),
    "a scale of zero": (at(3, 600), left, {"sm_scale": 0.0}),
    "a key of -Inf": (one_cell(3, -np.inf), left, {}),
    "a key of +Inf": (one_cell(3, np.inf), left, {}),
    "a key of NaN": (one_cell(3, np.nan), left, {}),
    "a key of NaN that nobody sees": (one_cell(0, np.nan), left, {"window_left": 7}),
    "a value of Inf": (left, one_cell(3, np.inf), {}),
    "a value of NaN": (left, one_cell(3, np.nan), {}),
    "a value of NaN that has no weight": (at(3, -600), one_cell(3, np.nan), {"sm_scale": SCALE}),
    "a value of NaN that nobody sees": (left, one_cell(0, np.nan), {"window_left": 7}),
}
# k_cache and v_cache; "latent": values are the first elements of keys
KINDS = ("f32", "f16", "bf16", "q8_0", "q4_0", "latent f16", "latent bf16")


def cache(fmt: str, rows: np.ndarray, num_pages: int) -> HostTensor:
    """Rows [n, SIZE] as a cache of one head. In a block format a value that is not finite becomes a scale of that."""
    cells = np.zeros((num_pages * PAGE, SIZE), np.float32)
    cells[: len(rows)] = rows
    bad = np.argwhere(~np.isfinite(cells))
    shape = (num_pages, PAGE, 1, SIZE)
    if fmt not in ("q8_0", "q4_0"):
        return in_format(cells.reshape(shape), fmt)
    packed = in_format(np.where(np.isfinite(cells), cells, np.float32(1)).reshape(shape), fmt)
    assert isinstance(packed, Packed)
    flat = packed.data.reshape(num_pages * PAGE, -1)
    for row, column in bad:
        start = column // 32 * packed.format.block_bytes
        flat[row, start : start + 2] = np.array([cells[row, column]], np.float16).view(np.uint8)
    return packed


def call_of(kind: str, scene: str, num_queries: int, length: int) -> dict[str, Any]:
    change_keys, change_values, attrs = SCORES[scene]
    num_pages = -(-length // PAGE)
    keys, values = np.full((length, SIZE), 0.5, np.float32), np.ones((length, SIZE), np.float32)
    keys += np.arange(length, dtype=np.float32)[:, None] * np.float32(2.0**-9)
    change_keys(keys)
    change_values(values)
    fmt = kind.rpartition(" ")[2]
    caches: dict[str, Any] = {"k_cache": cache(fmt, keys, num_pages), "v_cache": cache(fmt, values, num_pages)}
    if kind.startswith("latent"):
        caches = {"k_cache": caches["k_cache"][:, :, 0], "v_dim": SIZE // 2}
    return {
        "q": np.full((num_queries, 2, SIZE), QUERY, np.float32),
        **caches,
        "qo_indptr": np.array([0, num_queries], np.int32),
        "kv_last_page_len": np.array([length - (num_pages - 1) * PAGE], np.int32),
        "kv_indptr": np.array([0, num_pages], np.int32),
        "kv_indices": np.arange(num_pages, dtype=np.int32),
        "return_lse": True,
        **attrs,
    }


Outcome = list[bytes] | str


def outcome(run: Callable[[], list[HostTensor]]) -> Outcome:
    """The results' bytes, or the argument that is refused."""
    try:
        return [np.ascontiguousarray(x).tobytes() for x in run()]
    except BadInput as error:
        return error.argument


def on_cpu(call: dict[str, Any], threads: int, private: bool) -> Outcome:
    """private: with caches in the layouts that fast kernels read."""

    def run() -> list[HostTensor]:
        backend = CpuBackend()
        backend.set_threads(threads)
        bound = bind(OP, **call)
        kinds = {name: kind for name, kind in cache_kinds(OP).items() if name in bound.tensors} if private else None
        op = OneOp(backend, OP, bound.specs, bound.attrs, Tier.PORTABLE, kinds)
        op.put({name: copy_tensor(t) for name, t in bound.tensors.items()})
        op.run()
        return [op.result(i) for i in range(2)]

    return outcome(run)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scene", SCORES)
def test_kernels_give_or_refuse_what_the_definition_does(scene: str, kind: str) -> None:
    if kind.startswith("latent") and "value" in scene:
        pytest.skip("values are keys here")
    for num_queries, length, threads in ((1, 20, 1), (1, 600, 3), (9, 40, 2)):
        call = call_of(kind, scene, num_queries, length)
        want = outcome(lambda call=call: list(evaluate(bind(OP, **call))))  # type: ignore[misc]
        got = [on_cpu(call, threads, private) for private in (False, True)]
        assert got == [want, want], f"{num_queries} queries, length {length}"
