"""A tiny model with random weights: no sum in it is exact by luck, so another order shows in the bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

CONTEXT_LEN = 2048


def write_random_tiny(path: Path, num_extra_ids: int = 0, **metadata: Any) -> Path:
    """Two layers, 265 tokens, a context of 2048; the embedding may have rows beyond the tokens."""
    from gguf_writer import U32, Tensor, tiny_model

    file = tiny_model(**{"llama.context_length": (U32, CONTEXT_LEN)}, **metadata)
    rng = np.random.default_rng(1)

    def drawn(old: Tensor) -> Tensor:
        from samebits.formats import Q8_0

        shape = tuple(reversed(old.dims))
        if old.name == "token_embd.weight":
            shape = (shape[0] + num_extra_ids, *shape[1:])
        values = rng.normal(1.0 if len(shape) == 1 else 0.0, 1.5 / np.sqrt(shape[-1]), shape).astype(np.float32)
        data = Q8_0.pack(values).data if old.kind == 8 else values
        return Tensor(old.name, tuple(reversed(shape)), old.kind, data.tobytes())

    file.tensors = [drawn(t) for t in file.tensors]
    return file.write(path)
