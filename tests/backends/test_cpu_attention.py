"""The fast attention of the native backend: on caches in its own layouts, the bytes of the reference.

Cells that no token was stored in hold NaN, so a kernel that multiplies one of them shows.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from cache_scenes import place, raw

from samebits.backends.cpu import CpuBackend
from samebits.core.errors import BadInput, Unavailable
from samebits.core.format import Packed
from samebits.core.numerics.counter import Stream
from samebits.core.tiers import Tier
from samebits.graph import InputKind
from samebits.kernels.cpp import native
from samebits.ops.build import OpBuilder
from samebits.ops.evaluate import call, spec_of
from samebits.ops.kv_cases import attention_case, attention_inputs, cells_of
from samebits.ops.record import OPS, Case

try:
    ISAS = native().isas()
except Unavailable as missing:
    pytest.skip(str(missing), allow_module_level=True)

OP = OPS["paged_attention"]
KINDS: dict[str, InputKind] = {"k_cache": "cache", "v_cache": "cache"}
EDGES = {"lengths": (15, 16, 17, 255, 256, 257, 600), "queries": (15, 1, 2, 1, 30, 3, 1)}
LONG = {"lengths": (600, 3), "queries": (1, 1), "heads": 1, "group": 3, "head": 64}
PREFILL = {"lengths": (70, 290), "queries": (70, 50), "group": 3, "head": 64}
FORMATS = ("f16", "bf16", "q8_0")


def scene(name: str, **how: Any) -> Case:
    attrs = {"return_lse": True, **how.pop("attrs", {})}
    return attention_case(name, attrs=attrs, **how)


SCENES = [
    *(scene(f"edges-{k}-{v}", k=k, v=v, group=3, head=64, **EDGES) for k, v in product(FORMATS, FORMATS)),
    *(
        scene(f"head-{d}-{f}", k=f, v=f, head=d, lengths=(40, 19), queries=(1, 12))
        for d, f in product((16, 48, 80, 96, 112, 128, 256), FORMATS)
    ),
    *(scene(f"group-{g}", group=g, head=64, lengths=(300, 21, 18), queries=(1, 18, 2)) for g in (1, 2, 4, 5, 8, 17)),
    *(scene(f"window-{w}", attrs={"window_left": w}, **EDGES) for w in (0, 5, 20, 270)),
    *(scene(f"window-prefill-{f}", k=f, v=f, attrs={"window_left": 20}, **PREFILL) for f in FORMATS),
    *(scene(f"page-{ps}", page_size=ps, **EDGES) for ps in (32, 48, 256)),
    scene("not-causal", attrs={"causal": False}, **EDGES),
    scene("not-causal-window", attrs={"causal": False, "window_left": 3}, **EDGES),
    scene("soft-cap", attrs={"logits_soft_cap": 5.0}, **EDGES),
    scene("scale", attrs={"sm_scale": 0.3}, **EDGES),
    scene("values-of-another-size", head=64, v_dim=96, k="q8_0", v="q8_0", **EDGES),
    scene("nothing-seen", lengths=(0, 20, 0), queries=(0, 1, 3), attrs={"causal": False}),
    *(scene(f"prefill-{k}-{v}", k=k, v=v, **PREFILL) for k, v in product(FORMATS, FORMATS)),
    *(scene(f"split-{k}-{v}", k=k, v=v, **LONG) for k, v in product(FORMATS, FORMATS)),
    scene("split-window", attrs={"window_left": 400}, **LONG),
    scene("split-all", lengths=(600, 601, 602), queries=(1, 1, 1), heads=1, head=64),
    scene("split-contiguous", lengths=(608, 600, 513), queries=(1, 1, 1), heads=1, head=64, table=False),
    scene("contiguous", lengths=(48, 1, 40), queries=(40, 1, 1), group=3, table=False),
    scene("split-many-rows", lengths=(530,), queries=(20,), heads=1, group=3, head=64),
    scene("split-and-prefill", lengths=(600, 120), queries=(1, 120), heads=2, group=1, head=64),
]


def inputs_of(case: Case) -> dict[str, Any]:
    return dict(attention_inputs(OP, case, Stream(case.id)))


def reference(case: Case, inputs: dict[str, Any]) -> list[bytes]:
    return [raw(x) for x in call(OP, **inputs, **case.attrs)]


def native_bytes(case: Case, inputs: dict[str, Any], isa: str, threads: int) -> list[bytes]:
    """The case with its caches in private layouts."""
    backend, builder = CpuBackend(isa), OpBuilder()
    backend.set_threads(threads)
    values = {name: builder.input(name, spec_of(x), KINDS.get(name, "step")) for name, x in inputs.items()}
    results = builder.paged_attention(**values, **case.attrs)
    executable = backend.compile(builder.finish(*results), Tier.PORTABLE)
    assert (executable.layout("k_cache"), executable.layout("v_cache")) == ("k_lanes", "v_rows")
    for name, host in inputs.items():
        executable.bind(name, place(backend, host, executable.layout(name)))
    executable.run()
    return [raw(backend.copy_out(executable.output(i))) for i in range(len(results))]


@pytest.mark.parametrize("case", SCENES, ids=lambda case: case.id)
def test_private_caches_give_the_bytes_of_the_reference(case: Case) -> None:
    inputs = inputs_of(case)
    want = reference(case, inputs)
    for isa in ISAS:
        for threads in (1, 2, 3):
            assert native_bytes(case, inputs, isa, threads) == want, f"{isa}, {threads} threads"


def stored(inputs: dict[str, Any], name: str, sequence: int, position: int) -> np.ndarray:
    """One token's cells of a cache, all heads, to write to."""
    cache = inputs[name]
    data = cache.data if isinstance(cache, Packed) else cache
    page, slot = cells_of(inputs, sequence, np.array([position]), cache.shape[1])
    return data[int(page[0]), int(slot[0])]


@pytest.mark.parametrize("queries", [1, 30])
@pytest.mark.parametrize("name", ["k_cache", "v_cache"])
@pytest.mark.parametrize("fmt", ["f16", "bf16"])
@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_a_stored_value_that_is_not_finite_is_refused(fmt: str, name: str, queries: int, wrong: float) -> None:
    case = scene("refused", k=fmt, v=fmt, lengths=(40,), queries=(queries,), head=64)
    inputs = inputs_of(case)
    stored(inputs, name, 0, 17)[1, 5] = wrong
    for isa in ISAS:
        with pytest.raises(BadInput, match=name):
            native_bytes(case, inputs, isa, 2)


@pytest.mark.parametrize("queries", [1, 30])
@pytest.mark.parametrize("fmt", FORMATS)
def test_a_query_that_is_not_finite_is_refused(fmt: str, queries: int) -> None:
    case = scene("refused", k=fmt, lengths=(300,), queries=(queries,), head=64)
    inputs = inputs_of(case)
    inputs["q"][-1, 1, 3] = np.nan
    for isa in ISAS:
        with pytest.raises(BadInput, match=r"paged_attention: q (is|has) "):
            native_bytes(case, inputs, isa, 2)
