"""Device memory of the GPU backends: a torch tensor, or the bytes of a block format, under a spec."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import torch

from samebits.backends.interface import Buffer, View
from samebits.core.errors import BadInput
from samebits.core.format import FORMATS, BlockFormat, HostTensor, Packed
from samebits.core.shapes import TensorSpec
from samebits.kernels.triton.lib.tensors import DTYPES, Blocks, DeviceTensor, Tiled

BF16 = np.dtype(ml_dtypes.bfloat16)


class GpuBuffer(Buffer):
    """`tensor` is what kernels read."""

    def __init__(self, spec: TensorSpec, tensor: DeviceTensor) -> None:
        self.spec, self.tensor = spec, tensor


def empty(spec: TensorSpec, device: torch.device) -> DeviceTensor:
    """Memory for a spec, symbols at their upper bound, contents undefined."""
    shape, fmt = spec.upper_shape, FORMATS[spec.format]
    if isinstance(fmt, BlockFormat):
        data = torch.empty((*shape[:-1], fmt.row_bytes(shape[-1])), dtype=torch.uint8, device=device)
        return Blocks(fmt, data)
    return torch.empty(shape, dtype=DTYPES[spec.format], device=device)


def host_view(array: np.ndarray) -> torch.Tensor:
    """A host array as a torch tensor over the same memory; bfloat16 goes by its bits."""
    if not array.flags.writeable:  # torch has no read-only tensors and says so
        array = array.copy()
    if array.dtype == BF16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def to_device(host: HostTensor, device: torch.device) -> DeviceTensor:
    """A copy of a host tensor on the device."""
    if isinstance(host, Packed):
        data = host_view(np.ascontiguousarray(host.data)).to(device, copy=True)
        return Blocks(host.format, data, float(host.scale))
    whole = np.ascontiguousarray(host).reshape(host.shape)  # a tensor without axes keeps having none
    return host_view(whole).to(device, copy=True)


def to_host(tensor: DeviceTensor) -> HostTensor:
    """A fresh host copy; waits for the device."""
    if isinstance(tensor, Tiled):
        raise BadInput("gpu", "copy_out", "a weight rearranged for kernels", "a tensor in its own format")
    if isinstance(tensor, Blocks):
        return Packed(tensor.format, tensor.data.cpu().contiguous().numpy().copy(), np.float32(tensor.scale))
    host = tensor.detach().cpu().contiguous()
    if host.dtype == torch.bfloat16:
        return host.view(torch.int16).numpy().view(BF16).copy()
    return host.numpy().copy()


def pinned_copy(tensor: torch.Tensor) -> torch.Tensor:
    """A host copy that is there once the device's stream has been waited for."""
    host = torch.empty(
        tensor.shape, dtype=tensor.dtype, pin_memory=True
    )  # torch keeps such memory, and hands it out again
    return host.copy_(tensor, non_blocking=True)


def _stepped(data: torch.Tensor, steps: tuple[tuple[Any, ...], ...], fmt: BlockFormat | None) -> torch.Tensor:
    for kind, *arguments in steps:
        if kind == "slice":
            axis, start, stop = arguments
            data = data.narrow(axis, start, stop - start)
        elif kind == "permute":
            data = data.permute(arguments[0])
        else:
            shape = arguments[0]
            data = data.reshape(*shape[:-1], fmt.row_bytes(shape[-1]) if fmt else shape[-1])
    return data


def resolved(buffer: Buffer | View) -> DeviceTensor:
    """The tensor that a buffer of this backend, or a view of one, stands for; a view shares memory where it can."""
    base = buffer.base if isinstance(buffer, View) else buffer
    if not isinstance(base, GpuBuffer):
        raise BadInput("gpu", "buffer", type(base).__name__, "a buffer of this backend")
    if not isinstance(buffer, View):
        return base.tensor
    tensor = base.tensor
    if isinstance(tensor, Tiled):
        raise BadInput("gpu", "view", "a weight rearranged for kernels", "a tensor in its own format")
    if isinstance(tensor, Blocks):
        return Blocks(tensor.format, _stepped(tensor.data, buffer.steps, tensor.format), tensor.scale)
    return _stepped(tensor, buffer.steps, None)


def copy_into(target: DeviceTensor, source: DeviceTensor) -> None:
    """Device to device, same spec."""
    if isinstance(target, Blocks) and isinstance(source, Blocks):
        target.data.copy_(source.data)
    elif isinstance(target, torch.Tensor) and isinstance(source, torch.Tensor):
        target.copy_(source)
    else:
        raise BadInput("gpu", "result", type(source).__name__, f"a {type(target).__name__}")
