"""The magnitudes of everything that a reference computes: arrays that note each float32 result of an operation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np


class Traced(np.ndarray):
    """An array whose operations, and those of what they give, are noted in `noted`: smallest and largest magnitude."""

    noted: ClassVar[list[tuple[float, float]]] = []

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        plain = [_plain(x) for x in inputs]
        if "out" in kwargs:
            kwargs["out"] = tuple(_plain(x) for x in kwargs["out"])
        results = getattr(ufunc, method)(*plain, **kwargs)
        if method == "at":
            return None
        for result in results if isinstance(results, tuple) else (results,):
            _note(result)
        return _traced(results)

    def __array_function__(self, function: Callable[..., Any], types: Any, args: Any, kwargs: Any) -> Any:
        return _traced(function(*_plain(args), **_plain(kwargs)))


def _plain(x: Any) -> Any:
    if isinstance(x, Traced):
        return x.view(np.ndarray)
    if isinstance(x, (list, tuple)):
        return type(x)(_plain(item) for item in x)
    return {name: _plain(item) for name, item in x.items()} if isinstance(x, dict) else x


def _traced(x: Any) -> Any:
    if isinstance(x, (list, tuple)):
        return type(x)(_traced(item) for item in x)
    return np.asarray(x).view(Traced) if isinstance(x, (np.ndarray, np.float32)) else x


def _note(x: Any) -> None:
    if isinstance(x, (np.ndarray, np.float32)) and x.dtype == np.float32:
        magnitude = np.abs(np.asarray(x))
        counted = magnitude[(magnitude > 0) & np.isfinite(magnitude)]
        if counted.size:
            Traced.noted.append((float(counted.min()), float(counted.max())))


def traced_copy(x: Any) -> Any:
    return x.copy().view(Traced) if isinstance(x, np.ndarray) else x


@contextmanager
def tracing(monkeypatch: Any) -> Iterator[list[tuple[float, float]]]:
    """Fresh float32 arrays are traced too, so that sums into them are not lost."""
    zeros, full = np.zeros, np.full
    Traced.noted = []
    with monkeypatch.context() as patch:
        patch.setattr(np, "zeros", lambda *args, **kwargs: _traced(zeros(*args, **kwargs)))
        patch.setattr(np, "full", lambda *args, **kwargs: _traced(full(*args, **kwargs)))
        yield Traced.noted
