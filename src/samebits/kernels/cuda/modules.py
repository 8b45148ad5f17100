"""Machine code on a device, launched on torch's current stream: overlapping the launch before."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any

import torch

from samebits.core.errors import Unavailable

CLUSTER, OVERLAPPING = 4, 6  # numbers of launch attributes
DYNAMIC_SHARED_BYTES = 8  # number of a function attribute


class _Attribute(ctypes.Structure):
    _fields_ = (("id", ctypes.c_int), ("pad", ctypes.c_int), ("value", ctypes.c_uint * 16))


class _Config(ctypes.Structure):
    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("num_attributes", ctypes.c_uint),
    )


@cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


def _check(result: int, what: str) -> None:
    if result:
        text = ctypes.c_char_p()
        _driver().cuGetErrorString(result, ctypes.byref(text))
        raise Unavailable(f"{what} could not be launched: {(text.value or b'an unknown error').decode()}")


class Function:
    """A kernel of a module, with what all its launches share. Built where the device's context is current."""

    def __init__(self, code: bytes, name: str, threads: int, shared_bytes: int, cluster: int = 1) -> None:
        self._name, self._code = name, code
        module, self._function = ctypes.c_void_p(), ctypes.c_void_p()
        _check(_driver().cuModuleLoadData(ctypes.byref(module), code), name)
        _check(_driver().cuModuleGetFunction(ctypes.byref(self._function), module, name.encode()), name)
        _check(_driver().cuFuncSetAttribute(self._function, DYNAMIC_SHARED_BYTES, shared_bytes), name)
        self._attributes = (_Attribute * 2)()
        self._attributes[0].id, self._attributes[0].value[0] = OVERLAPPING, 1
        self._attributes[1].id, self._attributes[1].value[:3] = CLUSTER, (cluster, 1, 1)
        self._threads, self._shared_bytes = threads, shared_bytes

    @classmethod
    def on(
        cls, device: torch.device, code: bytes, name: str, threads: int, shared_bytes: int, cluster: int = 1
    ) -> Function:
        """The same, on a device whose context need not be current."""
        with torch.cuda.device(device):
            torch.cuda.current_stream()  # makes the device's context the current one
            return cls(code, name, threads, shared_bytes, cluster)

    def launch(self, grid: tuple[int, int], arguments: Sequence[Any]) -> None:
        """Launches blocks [grid]; arguments: ctypes, in the order of the kernel's parameters."""
        config = _Config(
            (*grid, 1),
            (self._threads, 1, 1),
            self._shared_bytes,
            torch.cuda.current_stream().cuda_stream,
            self._attributes,
            len(self._attributes),
        )
        pointers = (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(argument) for argument in arguments))
        _check(_driver().cuLaunchKernelEx(ctypes.byref(config), self._function, pointers, None), self._name)


def pointer(tensor: torch.Tensor | None) -> ctypes.c_void_p:
    """A tensor's address as an argument; None is no address."""
    return ctypes.c_void_p(None if tensor is None else tensor.data_ptr())


class TensorMap(ctypes.Structure):
    """What a kernel copies boxes of a tensor by."""

    _fields_ = (("words", ctypes.c_uint64 * 16),)


MAP_ALIGN = 64
MAP_TYPES = {torch.float16: 6, torch.bfloat16: 9}
SWAPPED_128, WHOLE_LINES = 3, 3  # numbers of an order, and of 256 bytes into the last cache at a time


def tensor_map(tensor: torch.Tensor, box: tuple[int, ...], is_swapped: bool) -> TensorMap:
    """A map of boxes of a tensor of 16-bit numbers, the first sizes those of its last axis, which is dense.

    Strides of the other axes, and where the tensor starts, are multiples of 16 bytes. Beyond an axis a box has zeros.
    In shared memory its rows follow each other, their 16 bytes swapped by a pattern of 128 where is_swapped.
    """
    return _encoded(tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride(), box, is_swapped)


@lru_cache(maxsize=1024)  # caches of a model's layers stay where they are
def _encoded(
    address: int,
    dtype: torch.dtype,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    box: tuple[int, ...],
    is_swapped: bool,
) -> TensorMap:
    rank, memory = len(shape), ctypes.create_string_buffer(ctypes.sizeof(TensorMap) + MAP_ALIGN)
    made = TensorMap.from_buffer(memory, -ctypes.addressof(memory) % MAP_ALIGN)
    sizes = (ctypes.c_uint64 * rank)(*reversed(shape))
    bytes_apart = (ctypes.c_uint64 * (rank - 1))(*(2 * stride for stride in reversed(strides[:-1])))
    ones = (ctypes.c_uint32 * rank)(*(1,) * rank)
    result = _driver().cuTensorMapEncodeTiled(
        ctypes.byref(made), MAP_TYPES[dtype], rank, ctypes.c_void_p(address), sizes, bytes_apart,
        (ctypes.c_uint32 * rank)(*box), ones, 0, SWAPPED_128 if is_swapped else 0, WHOLE_LINES, 0,
    )  # fmt: skip
    _check(result, "a copy of boxes")
    return made
