"""Triton's tests, in `make test-triton`: without torch and Triton nothing is collected.

Triton decides when it is imported whether kernels are interpreted, so the tests take two runs: with TRITON_INTERPRET=1
kernels run on the host, without it they are compiled.
"""

from __future__ import annotations

import os
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ALL = {path.name for path in Path(__file__).parent.glob("test_*.py")}
COMPILED = {"test_triton_compile.py", "test_triton_ahead.py", "test_triton_offsets.py"}
COMPILED |= {name for name in ALL if name.startswith("test_cuda_")}


def patch_once() -> None:
    """The interpreter puts its functions in the place of Triton's at a launch, and again at every call within a kernel,
    which takes most of its time: in a launch that has done so, calls find them there. Where a version of Triton
    lacks the parts that this takes, tests only take longer."""
    from triton.runtime import interpreter

    if not {"_patch_lang", "_LangPatchScope"} <= vars(interpreter).keys():
        return
    patch, tl = interpreter._patch_lang, interpreter.tl
    patched: set[Any] = set()  # modules, in this launch

    @cache
    def modules_of(fn: Any) -> frozenset[Any]:
        values = fn.__globals__.values()
        return frozenset(module for module in (tl, tl.core) if any(value is module for value in values))

    def patch_lang(fn: Any) -> Any:
        if patched and modules_of(fn) <= patched:
            return interpreter._LangPatchScope()  # nothing to restore
        scope = patch(fn)
        if not patched:
            restore = scope.restore
            scope.restore = lambda: (patched.clear(), restore())
        patched.update(modules_of(fn))
        return scope

    interpreter._patch_lang = patch_lang


if not (find_spec("torch") and find_spec("triton")):
    collect_ignore = sorted(ALL)
elif os.environ.get("TRITON_INTERPRET") == "1":
    from memory_bounds import check_addresses

    collect_ignore = sorted(COMPILED)
    patch_once()
    check_addresses()
else:
    collect_ignore = sorted(ALL - COMPILED)
