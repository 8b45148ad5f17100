"""Whole pages of caches and slots of states: copy_kv_pages, copy_slots, convert_kv_layout."""

from __future__ import annotations

from math import prod

from samebits.kernels.record import OpCall
from samebits.kernels.wgsl.lib.cache_views import BLOCK_FORMATS, UNITS, whole_words
from samebits.kernels.wgsl.lib.faults import fault
from samebits.kernels.wgsl.lib.launch import Binding, Call, Dispatch, Operand, Tables, View, ceil_div, linear
from samebits.kernels.wgsl.lib.params import code_words
from samebits.kernels.wgsl.lib.registry import implements, only_f32

GROUP = 64  # invocations
NO_PAGE = fault("copy_kv_pages", "sources or targets", "a page that is not there", "0 .. pages - 1")
NO_SLOT = fault("copy_slots", "sources or targets", "a slot that is not there", "0 .. slots - 1")


def _view(tensor: Operand) -> View:
    return "planes" if tensor.format in BLOCK_FORMATS else "words"


def _code_words(tensor: Operand) -> int:
    """Words of a block's codes; 0 of a plain format."""
    return code_words(tensor.format) if tensor.format in BLOCK_FORMATS else 0


def _scales(tensor: Operand) -> int:
    """The word where scales begin."""
    return tensor.num_blocks * _code_words(tensor)


def _copied(call: Call, cache: Operand, not_there: int) -> Dispatch:
    """Rows of a cache's first axis onto others."""
    sources, targets = call.tensor("sources"), call.tensor("targets")
    units = prod(cache.shape[1:]) // UNITS[cache.format]
    count = sources.shape[0] * units
    return Dispatch(
        "caches/pages",
        (
            Tables({"sources": sources, "targets": targets}),
            Binding("cache", cache, "write", _view(cache)),
        ),
        linear(ceil_div(count, GROUP)),
        consts={"CODE_WORDS": _code_words(cache)},
        params={"count": count, "units": units, "num_pages": cache.shape[0], "scales": _scales(cache)},
        faults={"NOT_THERE": not_there},
    )


@implements("copy_kv_pages", when=whole_words)
def copy_kv_pages(call: Call) -> list[Dispatch]:
    values = call.optional("v_cache")
    caches = [call.tensor("k_cache"), *([] if values is None else [values])]
    return [_copied(call, cache, NO_PAGE) for cache in caches]


@implements("copy_slots", when=only_f32("state"))
def copy_slots(call: Call) -> list[Dispatch]:
    return [_copied(call, call.tensor("state"), NO_SLOT)]


def _odd_layout(call: OpCall) -> str | None:
    spec = call.inputs["cache"]
    size = spec.shape[-1]
    is_odd = UNITS[spec.format] == 2 and isinstance(size, int) and size % 2 == 1
    return f"wgsl takes heads of an even size in a 16-bit cache, not {size}" if is_odd else None


@implements("convert_kv_layout", when=_odd_layout)
def convert_kv_layout(call: Call) -> list[Dispatch]:
    x, y = call.tensor("cache"), call.outputs[0]
    units = ceil_div(x.shape[-1], UNITS[x.format])
    count = x.shape[0] * prod(x.shape[1:-1]) * units
    return [
        Dispatch(
            "caches/layout",
            (Binding("x", x, "read", _view(x)), Binding("y", y, "write", _view(y))),
            linear(ceil_div(count, GROUP)),
            consts={
                "CODE_WORDS": _code_words(x),
                "UNITS": units,
                "A": x.shape[-3],
                "B": x.shape[-2],
                "PARTS": prod(x.shape[1:-3]),
                "SWAPS": call.attrs["source"] != call.attrs["target"],
            },
            params={"count": count, "from_scales": _scales(x), "into_scales": _scales(y)},
        )
    ]
