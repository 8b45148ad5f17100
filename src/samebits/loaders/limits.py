"""The largest files we read.

Limits are several times what the largest known models need, so that no file costs more than some seconds.
"""

from __future__ import annotations

MAX_VOCAB = 1 << 20
MAX_MERGES = 1 << 20

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
