"""The table that kernel files of this folder register in, and what all launches share."""

from __future__ import annotations

import triton.language as tl
from triton import knobs

from samebits.kernels.record import KernelTable
from samebits.kernels.triton.lib import disk_cache, shorter_compiling

disk_cache.install()
shorter_compiling.install()
TRITON = KernelTable("triton")
implements = TRITON.implements

INTERPRETED = bool(knobs.runtime.interpret)  # TRITON_INTERPRET=1: kernels run in numpy, on tensors of the host
EMULATE = tl.constexpr(INTERPRETED)  # the same, for kernels

# Every kernel that promises bits is launched with these: no multiplication is contracted with an addition.
UNFUSED = {"enable_fp_fusion": False}

# The others say it too: what Triton does where nothing is said changes with its version.
FUSED = {"enable_fp_fusion": True}
