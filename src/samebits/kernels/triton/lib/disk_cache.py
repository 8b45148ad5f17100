"""Triton's cache on disk, made fit to be carried elsewhere and to be found quickly.

Triton notes the files of a kernel by their whole paths, so that a copied cache is one of strangers; here they are taken
from the folder in which they lie. And the first kernel of every process waits until Triton has read its whole compiler,
hundreds of megabytes, to know which one it is; the installer's record has the same sums already.

Nor is a kernel's name in that cache the same in every process: into it go the constants of the functions that it calls,
but only of those that another kernel had been hashed with before, and in the order of addresses. Here a function's
constants go into its own hash alone, which is a part of its callers'.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import triton
from triton import knobs
from triton.runtime import cache, jit

LIBRARY = "triton/_C/libtriton"


class MovableCache(cache.FileCacheManager):
    """Triton's own, whose groups of files are found wherever the folder lies."""

    def get_group(self, filename: str) -> dict[str, str] | None:
        group = self.get_file(f"__grp__{filename}")
        if group is None:
            return None
        with open(group) as file:
            names = json.load(file).get("child_paths")
        if not isinstance(names, dict) or not all(map(self.has_file, names)):
            return None  # compiled again: what is half there was half removed
        return {name: self._make_path(name) for name in names}


def recorded_key(package: Path = Path(triton.__file__).parent) -> str | None:
    """What tells this Triton from others: the sums of its files as installed; None where they are not recorded."""
    for record in package.parent.glob("triton-*.dist-info/RECORD"):
        lines = [line for line in record.read_text().splitlines() if line.startswith("triton/") and ",sha256=" in line]
        if any(line.startswith(LIBRARY) for line in lines):
            summed = hashlib.sha256("".join(sorted(lines)).encode())
            return f"{triton.__version__}-{summed.hexdigest()}"
    return None


def _hash_alone(update: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    """What adds a called function to its caller's hash, without the constants of the called one beside it."""

    def add(self: Any, function: Any) -> None:
        key = function.cache_key  # before anything else, so that nothing depends on who asked first
        if function.__module__.startswith("samebits."):
            self.hasher.update(f"{key}{getattr(function, 'noinline', False)}".encode())
        else:
            update(self, function)

    return add


def install() -> None:
    """Makes Triton use all that; a manager that someone chose stays, and a compiler whose sums nobody recorded."""
    jit.DependenciesFinder._update_hash = _hash_alone(jit.DependenciesFinder._update_hash)
    if knobs.cache.manager_class in (None, cache.FileCacheManager):
        knobs.cache.manager_class = MovableCache
    key = recorded_key()
    if key is not None and hasattr(cache, "triton_key"):
        cache.triton_key = lambda: key
