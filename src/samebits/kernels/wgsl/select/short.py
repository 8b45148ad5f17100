"""argmax, top_k and top_k_mask_logits of short rows: one dispatch, however many rows there are."""

from __future__ import annotations

from math import prod

from samebits.kernels.wgsl.lib.launch import Binding, Call, Dispatch, ceil_div, linear
from samebits.kernels.wgsl.select.parts import GROUP

MOST_ELEMENTS = 64  # of a row: each is compared with every other


def short_rows(call: Call, gives: str, names: tuple[str, ...], nan_fault: int, k: int = 1) -> list[Dispatch]:
    """`gives` is the snippet that writes results, which it knows under `names`."""
    x = call.tensor("x")
    results = (Binding(name, t, "write") for name, t in zip(names, call.outputs, strict=True))
    return [
        Dispatch(
            "select/short",
            (Binding("x", x), *results),
            linear(ceil_div(x.num_rows * x.shape[-1], GROUP)),
            consts={"GROUP": GROUP, "LENGTH": x.shape[-1]},
            params={"num_rows": x.num_rows, "inner": prod(x.shape[1:-1]), "k": min(k, x.shape[-1])},
            snippets=(gives,),
            faults={"NAN": nan_fault},
        )
    ]


def is_short(call: Call) -> bool:
    """Whether a row's elements are few enough for that."""
    return call.tensor("x").shape[-1] <= MOST_ELEMENTS
