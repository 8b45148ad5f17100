"""Arrays of other libraries in and out, without importing them. numpy and DLPack are the common ground."""

from __future__ import annotations

import sys
from typing import Any

import ml_dtypes
import numpy as np

from samebits.core.format import HostTensor, Packed

BF16 = np.dtype(ml_dtypes.bfloat16)


def is_torch(x: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def is_array(x: Any) -> bool:
    return isinstance(x, (np.ndarray, Packed)) or is_torch(x) or hasattr(x, "__dlpack__")


def to_host(x: Any) -> Any:
    """A host tensor that shares memory with x where it can; anything that is not an array is returned as it is.

    torch bfloat16 goes through int16, since DLPack to numpy has no bfloat16.
    """
    if isinstance(x, (np.ndarray, Packed)):
        return x
    if is_torch(x):
        torch = sys.modules["torch"]
        x = x.detach()
        if x.dtype == torch.bfloat16:
            return x.view(torch.int16).cpu().numpy().view(BF16)
        return x.cpu().numpy()
    if hasattr(x, "__dlpack__"):
        try:
            return np.from_dlpack(x)
        except (BufferError, RuntimeError, TypeError):  # a type or device DLPack to numpy lacks: ask the array itself
            return np.asarray(x)
    return x


def like(result: HostTensor, example: Any) -> Any:
    """The result in the example's library: torch for torch, numpy otherwise."""
    if not is_torch(example) or isinstance(result, Packed):
        return result
    torch = sys.modules["torch"]
    if result.dtype == BF16:
        return torch.from_numpy(result.view(np.int16)).view(torch.bfloat16).to(example.device)
    return torch.from_numpy(result).to(example.device)
