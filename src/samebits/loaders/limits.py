"""The largest models and files we read, and the checks that every source's hyperparameters must pass.

Limits on files are several times what the largest known models need, so that no file costs more than some seconds.
"""

from __future__ import annotations

from samebits.core.errors import BadInput
from samebits.core.protocols import Hyperparameters

MAX_LAYERS = 1024
MAX_WIDTH = 1 << 20
MAX_HEADS = 4096
MAX_HEAD_SIZE = 4096
MAX_VOCAB = 1 << 20
MAX_MERGES = 1 << 20
MAX_CONTEXT = 1 << 30

MAX_JSON_ITEMS = 1 << 23  # of a JSON file

# of a GGUF file, in all
MAX_HEADER_BYTES = 64 << 20  # everything before the tensor data
MAX_KEYS = 1 << 16
MAX_TENSORS = 1 << 16
MAX_ELEMENTS = 1 << 22  # of all arrays together
MAX_STRINGS = 1 << 21  # among them
MAX_NESTED_ARRAYS = 1 << 12  # arrays within arrays

# of each thing in it
MAX_NESTING = 4
MAX_STRING_BYTES = 16 << 20
MAX_KEY_BYTES = 65535  # the format's own limit
MAX_TENSOR_NAME_BYTES = 256


def checked(hp: Hyperparameters, where: str) -> Hyperparameters:
    """The same hyperparameters, if they agree with one another."""
    if hp.head_size < 1:
        raise BadInput(where, "head size", hp.head_size, "at least 1")
    if hp.num_heads % hp.num_kv_heads:
        raise BadInput(where, "key and value heads", hp.num_kv_heads, f"a divisor of the {hp.num_heads} query heads")
    if hp.rotary_dims % 2 or hp.rotary_dims > hp.head_size:
        raise BadInput(where, "rotary dimensions", hp.rotary_dims, f"an even number up to the head size {hp.head_size}")
    return hp
