"""What tests of kernels/cuda share: an H200 that is not here, its compiler, and calls of named cases without memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from inspect import signature
from typing import Any

import pytest

from samebits.backends.gpu.buffers import empty
from samebits.core.errors import Unavailable
from samebits.kernels.cuda import nvrtc
from samebits.kernels.triton.lib.devices import MEMORYLESS, describing, parsed_facts
from samebits.ops import OPS
from samebits.ops.cases import make_inputs
from samebits.ops.evaluate import spec_of


@pytest.fixture
def an_h200() -> Iterator[None]:
    with describing(parsed_facts("sm_90/132")):
        yield


@pytest.fixture
def compiler() -> None:
    try:
        nvrtc.library()
    except Unavailable as reason:
        pytest.skip(str(reason))


def arguments_of_case(launcher: Callable[..., Any], name: str) -> dict[str, Any]:
    """A launcher's arguments of a named case of paged_attention: its defaults, tensors without memory, attrs."""
    op = OPS["paged_attention"]
    given = {p.name: p.default for p in signature(launcher).parameters.values()}
    for key, value in make_inputs(op, next(case for case in op.cases if case.id == name)).items():
        is_input = any(key == declared.name for declared in op.inputs)
        given[key] = empty(spec_of(value), MEMORYLESS) if is_input else value
    return given
