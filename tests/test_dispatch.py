"""The reference's bits do not move with the CPU that numpy and its BLAS pick code for."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np

HASH_ALL = """
import hashlib
from samebits.core.format import Packed
from samebits.ops import OPS, bind, evaluate, make_inputs
for op in OPS:
    digest = hashlib.sha256()
    for case in op.cases:
        sizes = [case.dims.get("HB", 0) * 64, case.dims.get("T", 0) * 8, *(case.dims.get(name, 0) for name in "VKN")]
        is_long = case.id.startswith(("prompt-", "decode-", "mla"))  # as is what smaller cases compute, for seconds
        if not case.full and not is_long and max(sizes) < 1024:
            for result in evaluate(bind(op, **make_inputs(op, case))):
                data = result.data if isinstance(result, Packed) else result
                digest.update(data.tobytes())
    print(op.name, digest.hexdigest())
"""


def dispatched_features() -> list[str]:
    """CPU features that numpy chose at run time on this machine, above its baseline."""
    found = np.show_config(mode="dicts")["SIMD Extensions"].get("found", [])
    return [str(name) for name in found]


def hashes(**environment: str) -> str:
    run = subprocess.run(
        [sys.executable, "-c", HASH_ALL],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return run.stdout


def test_bits_are_the_same_with_numpys_dispatch_reduced() -> None:
    features = dispatched_features()
    assert features, "this machine has nothing to disable, so the test shows nothing"
    reduced = {
        "NPY_DISABLE_CPU_FEATURES": " ".join(features),
        "OPENBLAS_CORETYPE": "Prescott",
        "OPENBLAS_NUM_THREADS": "1",
    }
    assert hashes() == hashes(**reduced)
