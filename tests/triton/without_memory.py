"""What tests of kernels/cuda share: an H200 that is not here, its compiler, and calls of named cases without memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from inspect import signature
from typing import Any

import pytest
import torch

from samebits.backends.gpu.buffers import empty
from samebits.core.errors import Unavailable
from samebits.kernels.cuda import nvrtc
from samebits.kernels.triton.attention.call import Call, make_call
from samebits.kernels.triton.attention.fast.arguments import Arguments, arguments_of
from samebits.kernels.triton.attention.fast.op import paged_attention_fast
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


# Arguments of `fast_call`: every flag of the fast tier's kernels, both types of queries, both sizes of heads.
FAST_FORMS: list[dict[str, Any]] = [
    {},
    {"size": 64, "dtype": torch.float16, "heads": (9, 3), "window_left": 100, "return_lse": True},
    {"q_dtype": torch.bfloat16, "has_sinks": True, "causal": False, "page": 256},
    {"has_table": False, "page": 100},
]


def fast_call(
    *,
    num_sequences: int = 2,
    num_queries: int = 256,
    num_pages: int = 64,
    heads: tuple[int, int] = (32, 8),
    size: int = 128,
    page: int = 16,
    has_table: bool = True,
    q_dtype: torch.dtype = torch.float32,
    dtype: torch.dtype = torch.bfloat16,
    **given: Any,
) -> Arguments:
    """Arguments of the fast tier's paged_attention: so many queries of every sequence, without memory."""
    options = {"causal": True, "sm_scale": None, "window_left": -1, "logits_soft_cap": 0.0, "return_lse": False} | given
    integers = torch.empty(num_sequences + 1, dtype=torch.int32, device=MEMORYLESS)
    cache = torch.empty(num_pages, page, heads[1], size, dtype=dtype, device=MEMORYLESS)
    return arguments_of(
        torch.empty(num_sequences * num_queries, heads[0], size, dtype=q_dtype, device=MEMORYLESS),
        cache,
        integers,
        integers[1:],
        v_cache=cache,
        kv_indptr=integers if has_table else None,
        kv_indices=torch.empty(num_pages, dtype=torch.int32, device=MEMORYLESS) if has_table else None,
        sinks=torch.empty(heads[0], device=MEMORYLESS) if options.pop("has_sinks", False) else None,
        layout="NHD",
        **options,
    )


def fast_call_of_case(name: str) -> Arguments:
    """A named case of paged_attention, as the fast tier takes it."""
    given = arguments_of_case(paged_attention_fast, name)
    return arguments_of(**{key: value for key, value in given.items() if key not in ("alibi_slopes", "custom_mask")})


def portable_call(
    *,
    num_sequences: int = 4,
    num_queries: int = 1,
    num_pages: int = 64,
    heads: tuple[int, int] = (32, 8),
    size: int = 128,
    page: int = 16,
    has_table: bool = True,
    q_dtype: torch.dtype = torch.float32,
    dtype: torch.dtype = torch.float16,
    v_dtype: torch.dtype | None = None,
    extras: tuple[str, ...] = (),
    **given: Any,
) -> Call:
    """A call of the portable tier's paged_attention: so many queries of every sequence, without memory."""
    options = {"causal": True, "sm_scale": None, "window_left": -1, "logits_soft_cap": 0.0, "v_dim": 0} | given
    integers = torch.empty(num_sequences + 1, dtype=torch.int32, device=MEMORYLESS)
    shape = (num_pages, page, heads[1], size)
    inputs = {name: torch.empty(heads[0], device=MEMORYLESS) for name in extras}
    return make_call(
        torch.empty(num_sequences * num_queries, heads[0], size, dtype=q_dtype, device=MEMORYLESS),
        torch.empty(shape, dtype=dtype, device=MEMORYLESS),
        integers,
        integers[1:],
        v_cache=torch.empty(shape, dtype=v_dtype or dtype, device=MEMORYLESS),
        kv_indptr=integers if has_table else None,
        kv_indices=torch.empty(num_pages, dtype=torch.int32, device=MEMORYLESS) if has_table else None,
        **{name: inputs.get(name) for name in ("sinks", "alibi_slopes", "custom_mask")},
        layout="NHD",
        return_lse=options.pop("return_lse", False),
        **options,
    )
