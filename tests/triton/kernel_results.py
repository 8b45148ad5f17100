"""What is wrong with the results of an op's kernels on the `cuda` backend."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from samebits.backends.discovery import get
from samebits.backends.support import choose_kernel
from samebits.core.errors import Unsupported
from samebits.core.format import HostTensor, Packed, copy_tensor, dtype_name
from samebits.core.numerics.settling import unsettled
from samebits.core.tiers import Tier
from samebits.ops import Op, bind, evaluate, make_inputs
from samebits.ops.record import FLOATS, Case
from samebits.verify.bounds import Judge
from samebits.verify.harness import execute
from samebits.verify.locate import same_bits

TIERS = (Tier.PORTABLE, Tier.INVARIANT, Tier.FAST)


def differences(op: Op, case: Case) -> Iterator[str]:
    """One run of each kernel, at the strongest tier it is chosen for: other values than the reference's, or bits where
    the kernel promises them, and floats that are not settled."""
    backend = get("cuda").backend
    inputs = make_inputs(op, case)
    copies = {k: copy_tensor(v) if isinstance(v, (np.ndarray, Packed)) else v for k, v in inputs.items()}
    wanted = evaluate(bind(op, **copies))
    bound = bind(op, **inputs)
    judge = Judge(bound, wanted)
    seen = set()
    for tier in TIERS:
        try:
            kernel = choose_kernel(backend, op, bound.specs, bound.attrs, tier)
        except Unsupported as error:
            yield f"{case.id}: {error}"
            continue
        if kernel.name in seen:
            continue
        seen.add(kernel.name)
        outcome = execute(backend, op, inputs, tier)
        yield from (f"{case.id}: {kernel.name}: {f.check}: {f.where}" for f in outcome.findings)
        for i, (result, got, want) in enumerate(zip(op.results, outcome.results, wanted, strict=False)):
            right = same_bits(got, want) if tier is Tier.PORTABLE else not judge.outside(i, got).any()
            if not right:
                yield f"{case.id}: {kernel.name}: {result.name} differs"
            if not all_settled(got):
                yield f"{case.id}: {kernel.name}: {result.name} is not settled"


def all_settled(x: HostTensor) -> bool:
    return isinstance(x, Packed) or dtype_name(x) not in FLOATS or not unsettled(np.ascontiguousarray(x)).any()
