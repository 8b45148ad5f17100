"""Every op as a function on arrays:

    from samebits import functional as F
    y = F.rms_norm(x, w, eps=1e-5, backend="reference", numerics="portable")

Inputs by position or name, attrs by name, in any array library that numpy or DLPack can read; results in the
library of the first input. Ops that update a cache write into the array that was given; a call that raises has
written nothing. The FlashInfer names of the source documents are aliases. `help(F.rms_norm)` shows the record.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from samebits.api.arrays import is_array, like, to_host
from samebits.backends import discovery
from samebits.backends.one_op import run_op
from samebits.backends.support import check_tier, strongest_tier
from samebits.core.errors import BadInput, Unsupported
from samebits.core.format import HostTensor, store
from samebits.core.tiers import Tier
from samebits.ops import OPS, Bound, Op, bind
from samebits.ops.rope import rope_table

DEFAULT_BACKEND = "reference"


def run_in_place(bound: Bound, backend: str, numerics: str | None) -> tuple[HostTensor, ...]:
    """Runs a checked call on a backend by name. Aliased inputs are written last: a call that fails writes none."""
    found = discovery.get(backend)
    device, caps = found.backend, found.caps
    if device is None or caps is None:
        raise Unsupported(f"backend {backend}: {found.reason}")
    tier = (
        strongest_tier(device, caps, bound.op, bound.specs, bound.attrs) if numerics is None else Tier.parse(numerics)
    )
    tier = Tier.FAST if tier is None else tier  # compile then says why no kernel serves
    check_tier(device, caps, tier)
    values = run_op(device, bound, tier)
    results = zip(bound.op.active_results(bound.tensors, bound.attrs), values, strict=True)
    return tuple(store(bound.tensors[r.alias_of] if r.alias_of else None, value) for r, value in results)


def _function_of(op: Op) -> Callable[..., Any]:
    def function(*args: Any, backend: str = DEFAULT_BACKEND, numerics: str | None = None, **kwargs: Any) -> Any:
        given = [*args, *kwargs.values()]
        bound = bind(op, *map(to_host, args), **{name: to_host(value) for name, value in kwargs.items()})
        example = next((x for x in given if is_array(x)), None)
        results = tuple(like(r, example) for r in run_in_place(bound, backend, numerics))
        return results[0] if len(results) == 1 else results

    function.__name__ = function.__qualname__ = op.name
    function.__doc__ = _docstring(op)
    reference = inspect.signature(op.reference)
    extra = [
        inspect.Parameter("backend", inspect.Parameter.KEYWORD_ONLY, default=DEFAULT_BACKEND),
        inspect.Parameter("numerics", inspect.Parameter.KEYWORD_ONLY, default=None),
    ]
    function.__signature__ = reference.replace(parameters=[*reference.parameters.values(), *extra])  # type: ignore[attr-defined]
    return function


def _docstring(op: Op) -> str:
    lines = [inspect.getdoc(op.reference) or op.summary, ""]
    for t in op.inputs:
        dims = " or ".join(f"[{d}]" for d in t.dims_choices)
        lines.append(f"{t.name} {dims} {'|'.join(t.formats)}{' (optional)' if t.optional else ''}: {t.doc}")
    lines += [f"{a.name} = {a.default!r}: {a.doc}" for a in op.attrs]
    lines += [f"-> {r.name} [{r.dims}] {r.format} {r.doc}".rstrip() for r in op.results]
    return "\n".join(lines)


@cache
def _functions() -> dict[str, Callable[..., Any]]:
    functions = {}
    for op in OPS:
        function = _function_of(op)
        functions.update(dict.fromkeys((op.name, *op.aliases), function))
    return functions


def apply_llama31_rope_pos_ids_inplace(
    q: Any,
    k: Any,
    pos_ids: Any,
    rotary_dim: int | None = None,
    interleave: bool = False,
    rope_scale: float = 8.0,
    rope_theta: float = 5e5,
    low_freq_factor: float = 1.0,
    high_freq_factor: float = 4.0,
    old_context_len: int = 8192,
    *,
    backend: str = DEFAULT_BACKEND,
    numerics: str | None = None,
) -> None:
    """FlashInfer's call: rotates q [T, Hq, D] and k [T, Hkv, D] in place."""
    arrays = [to_host(x) for x in (q, k)]
    positions = to_host(pos_ids)
    for name, x in zip("qk", arrays, strict=True):
        if not isinstance(x, np.ndarray) or not x.flags.writeable or x.ndim != 3:
            raise BadInput("apply_llama31_rope_pos_ids_inplace", name, type(x).__name__, "a writable array [T, H, D]")
    num_positions = int(positions.max(initial=-1)) + 1 if isinstance(positions, np.ndarray) else 0
    table = rope_table(
        num_positions,
        rotary_dim or arrays[0].shape[-1],
        theta=rope_theta,
        scaling="llama31",
        factor=rope_scale,
        low=low_freq_factor,
        high=high_freq_factor,
        old_context_len=old_context_len,
    )
    calls = [bind(OPS["rope"], x, positions, table, interleave=interleave) for x in arrays]
    rotated = [run_in_place(bound, backend, numerics)[0] for bound in calls]
    for x, y in zip(arrays, rotated, strict=True):
        store(x, y)


def __getattr__(name: str) -> Any:
    if name in _functions():
        return _functions()[name]
    raise AttributeError(f"functional has no op {name!r}; it has {', '.join(OPS.names())}")


def __dir__() -> list[str]:
    return sorted([*_functions(), "apply_llama31_rope_pos_ids_inplace", "rope_table"])
