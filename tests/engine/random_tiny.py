"""A tiny model with random weights: no sum in it is exact by luck, so another order shows in the bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

CONTEXT_LEN = 2048


def write_random_tiny(path: Path, num_extra_ids: int = 0, num_experts: int = 0, **metadata: Any) -> Path:
    """Two layers, 265 tokens, a context of 2048; the embedding may have rows beyond the tokens, the layers experts, of
    which a token chooses 3."""
    from gguf_writer import U32, Tensor, tensor, tiny_model

    file = tiny_model(**{"llama.context_length": (U32, CONTEXT_LEN)}, **metadata)
    rng = np.random.default_rng(1)

    def stacked(old: Tensor) -> Tensor:
        if ".ffn_" not in old.name or len(old.dims) < 2:
            return old
        return tensor(old.name.replace(".weight", "_exps.weight"), (num_experts, *reversed(old.dims)), old.kind)

    if num_experts:
        file.metadata |= {"llama.expert_count": (U32, num_experts), "llama.expert_used_count": (U32, 3)}
        routers = [tensor(f"blk.{i}.ffn_gate_inp.weight", (num_experts, 64)) for i in range(2)]
        file.tensors = [*map(stacked, file.tensors), *routers]

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
