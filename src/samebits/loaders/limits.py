"""The largest models we read, and the checks that every source's hyperparameters must pass."""

from __future__ import annotations

from samebits.core.errors import BadInput
from samebits.core.protocols import Hyperparameters

MAX_LAYERS = 1024
MAX_WIDTH = 1 << 20
MAX_HEADS = 4096
MAX_HEAD_SIZE = 4096
MAX_VOCAB = 1 << 22
MAX_CONTEXT = 1 << 30


def checked(hp: Hyperparameters, where: str) -> Hyperparameters:
    """The same hyperparameters, if they agree with one another."""
    if hp.head_size < 1:
        raise BadInput(where, "head size", hp.head_size, "at least 1")
    if hp.num_heads % hp.num_kv_heads:
        raise BadInput(where, "key and value heads", hp.num_kv_heads, f"a divisor of the {hp.num_heads} query heads")
    if hp.rotary_dims % 2 or hp.rotary_dims > hp.head_size:
        raise BadInput(where, "rotary dimensions", hp.rotary_dims, f"an even number up to the head size {hp.head_size}")
    return hp
