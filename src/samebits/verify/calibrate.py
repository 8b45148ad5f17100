"""How slow this machine is now. Time limits are stated for an idle machine and scale with the answer.

A machine under load, or one that is emulated, takes many times longer for the same work: a limit in plain seconds would
end work that is sound.
"""

from __future__ import annotations

import time

import numpy as np

from samebits.ops import OPS, bind, evaluate, make_inputs
from samebits.verify.select import find_case

OP, CASE, REPEATS = "paged_attention", "decode", 20
USUAL_SECONDS = 0.25  # for all repeats, on one idle core of a machine of 2020; a faster one gets no shorter limits


def slowness() -> float:
    """Return how many times longer a fixed piece of the reference's work takes here and now than usual; at least 1."""
    bound = bind(OPS[OP], **make_inputs(OPS[OP], find_case(OPS[OP], CASE), 0))
    started = time.perf_counter()
    with np.errstate(all="ignore"):
        for _ in range(REPEATS):
            evaluate(bound)
    return max(1.0, (time.perf_counter() - started) / USUAL_SECONDS)
