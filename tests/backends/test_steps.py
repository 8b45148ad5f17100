"""An executable is used again and again, with other sizes each time."""

from __future__ import annotations

import numpy as np

from samebits.backends.reference import ReferenceBackend
from samebits.core.shapes import Sym, TensorSpec
from samebits.core.tiers import Tier
from samebits.ops.build import OpBuilder


def test_a_second_step_of_another_size_starts_afresh() -> None:
    backend, builder = ReferenceBackend(), OpBuilder()
    x = builder.input("x", TensorSpec((Sym("T", 8), 4), "f32"))
    executable = backend.compile(builder.finish(builder.add(builder.scale(x, factor=2.0), x)), Tier.PORTABLE)
    for num_tokens in (5, 1, 8):
        host = np.full((num_tokens, 4), num_tokens, np.float32)
        buffer = backend.alloc(TensorSpec(host.shape, "f32"))
        backend.copy_in(buffer, host)
        executable.bind("x", buffer)
        executable.run()
        assert backend.copy_out(executable.output(0)).tolist() == (3 * host).tolist()
