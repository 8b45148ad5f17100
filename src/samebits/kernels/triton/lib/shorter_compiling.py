"""Triton's compiler without work that comes to nothing: the same code, for some kernels in a tenth of the time.

The pass `coalesce` gives every access to memory a layout in which neighbouring threads read neighbouring words. For
each access it walks over all that is connected with it, again from every operation that it meets: time as the cube of a
kernel's size, 97 % of what the largest took. Where tensors of pointers have one axis and no more elements than the
program has threads, each thread has one element already, which is the layout that the pass would give.
"""

from __future__ import annotations

import re
from contextvars import ContextVar
from functools import wraps
from typing import Any

from triton._C.libtriton import passes
from triton.backends import backends

_POINTERS = re.compile(r"tensor<([0-9x]+)x!tt\.ptr")
_is_idle: ContextVar[bool] = ContextVar("is_idle", default=False)


def has_own_elements(ttir: str, num_threads: int) -> bool:
    """Whether memory is reached by tensors of pointers alone, with one axis and at most an element per thread."""
    if "tt.descriptor" in ttir:  # the pass gives layouts to these too
        return False
    return all("x" not in shape and int(shape) <= num_threads for shape in set(_POINTERS.findall(ttir)))


def install() -> None:
    """Spares kernels of this process the pass where it would change nothing; nothing for a Triton made otherwise."""
    add_coalesce = getattr(passes.ttgpuir, "add_coalesce", None)
    if add_coalesce is None or hasattr(add_coalesce, "__wrapped__"):
        return

    def add_unless_idle(manager: Any) -> None:
        if not _is_idle.get():
            add_coalesce(manager)

    add_unless_idle.__wrapped__ = add_coalesce  # type: ignore[attr-defined]
    passes.ttgpuir.add_coalesce = add_unless_idle
    for backend in backends.values():
        if hasattr(backend.compiler, "make_ttgir"):
            backend.compiler.make_ttgir = staticmethod(_judging(backend.compiler.make_ttgir))


def _judging(make_ttgir: Any) -> Any:
    """The stage that runs the pass, looking first whether it has to."""

    @wraps(make_ttgir)
    def make(module: Any, metadata: dict[str, Any], options: Any, *rest: Any) -> Any:
        num_threads = options.num_warps * getattr(options, "warp_size", 32)
        token = _is_idle.set(options.num_ctas == 1 and has_own_elements(str(module), num_threads))
        try:
            return make_ttgir(module, metadata, options, *rest)
        finally:
            _is_idle.reset(token)

    return make
