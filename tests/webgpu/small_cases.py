"""Small cases of every op with a WGSL kernel. As a program: SHA-256 of their results on the device of this process.

VK_DRIVER_FILES and a driver's own variables choose that device: `VK_DRIVER_FILES=icd.json python small_cases.py`.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from case_sizes import weight_bytes

from samebits.backends.discovery import get
from samebits.backends.interface import Backend
from samebits.backends.one_op import run_op
from samebits.backends.support import candidates, op_call
from samebits.core.format import HostTensor, Packed
from samebits.core.tiers import Tier
from samebits.kernels.wgsl.table import wgsl_kernels
from samebits.ops import OPS, Bound, Op, bind, make_inputs
from samebits.ops.record import Case
from samebits.verify.harness import raw_bytes

WITH_KERNELS = tuple(sorted({kernel.op.name for kernel in wgsl_kernels()}))
MOST_BYTES = 256 << 10  # of all inputs of a case
CHOSEN = {"paged_attention": "k-f32-v-f32"}  # SwiftShader compiles for half a minute where heads are large


def num_bytes(inputs: dict[str, Any]) -> int:
    arrays = [x.data if isinstance(x, Packed) else x for x in inputs.values()]
    return sum(x.nbytes for x in arrays if isinstance(x, np.ndarray))


@cache
def small_first(op_name: str) -> list[Case]:
    """Quick cases with names, by the bytes of their inputs."""
    op = OPS[op_name]
    small = [case for case in op.cases if not case.full and weight_bytes(op, case) < MOST_BYTES]
    sizes = {case.id: num_bytes(make_inputs(op, case)) for case in small}
    cases = [case for case in op.cases if sizes.get(case.id, MOST_BYTES) < MOST_BYTES]
    return sorted(cases, key=lambda case: sizes[case.id])


def largest_served(backend: Backend, op: Op) -> tuple[str, Bound]:
    """(name, call) of the largest small case that a kernel serves in the portable tier, or of the one in CHOSEN."""
    for case in reversed(small_first(op.name)):
        if case.id != CHOSEN.get(op.name, case.id):
            continue
        bound = bind(op, **make_inputs(op, case))
        if candidates(backend, op_call(op, bound.specs, bound.attrs, Tier.PORTABLE))[0] is not None:
            return case.id, bound
    raise LookupError(f"{op.name}: the kernels serve no small case")


def sha256(tensors: Iterable[HostTensor]) -> str:
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(raw_bytes(tensor).tobytes())
    return digest.hexdigest()


def hashes(backend: Backend) -> Iterator[tuple[str, str]]:
    """(op and case, hash of the results) of every op."""
    for name in WITH_KERNELS:
        case_id, bound = largest_served(backend, OPS[name])
        yield f"{name} {case_id}", sha256(run_op(backend, bound, Tier.PORTABLE))


if __name__ == "__main__":
    found = get("webgpu")
    assert found.backend is not None
    assert found.caps is not None
    json.dump({"device": found.caps.device, "hashes": dict(hashes(found.backend))}, sys.stdout)
