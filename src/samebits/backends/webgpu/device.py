"""The adapter, the device and its limits; what wgpu raises, in one line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import wgpu
from wgpu.backends.wgpu_native.extras import set_instance_extras

from samebits.core.errors import OutOfMemory, SamebitsError, Unavailable

MAX_BINDING_BYTES = 128 << 20  # what every device grants, so nothing larger is ever bound
MAX_STORAGE_BUFFERS = 8  # of a shader, likewise
WANTED_FEATURES = ("timestamp-query",)  # for profiles only


class Gpu:
    """A device with its queue. `device` and `queue` are wgpu's."""

    def __init__(self, adapter: Any) -> None:
        features = [name for name in WANTED_FEATURES if name in adapter.features]
        self.adapter = adapter
        self.device = adapter.request_device_sync(required_features=features)
        self.queue = self.device.queue
        self.uniform_alignment = int(self.device.limits["min-uniform-buffer-offset-alignment"])

    @property
    def name(self) -> str:
        """The device, and the API it is reached by."""
        info = self.adapter.info
        return f"{info['device']} ({info['backend_type']})"

    def buffer(self, num_bytes: int, usage: int | None = None) -> Any:
        """Memory of at least so many bytes, a multiple of 16; zeroed."""
        size = max(16, -(-num_bytes // 16) * 16)
        flags = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC | wgpu.BufferUsage.COPY_DST
        with explained(f"{size / 2**20:,.1f} MiB of memory"):
            return self.device.create_buffer(size=size, usage=usage or flags)


@cache
def gpu() -> Gpu:
    """The device of this process; Unavailable with the reason."""
    set_instance_extras(backends=["Vulkan", "Metal", "DX12"])  # GL has no compute worth the name
    try:
        adapter = wgpu.gpu.request_adapter_sync(power_preference="high-performance")
        return Gpu(adapter)
    except Exception as error:
        raise Unavailable(f"no WebGPU device: {_first_line(error)}") from None


@contextmanager
def explained(what: str) -> Iterator[None]:
    """Turns wgpu's errors into one line of ours; the device goes on where it can."""
    try:
        yield
    except wgpu.GPUOutOfMemoryError:
        raise OutOfMemory(f"{what} does not fit on {gpu().name}") from None
    except wgpu.GPUError as error:
        raise SamebitsError(f"webgpu: {what}: {_first_line(error)}") from error


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " / ".join(lines[:2]) if lines else type(error).__name__
