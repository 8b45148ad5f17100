"""The adapter, the device and its limits; memory; the way of bytes to and from it."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import cache
from threading import Lock
from typing import Any

import numpy as np
import wgpu
from wgpu.backends.wgpu_native.extras import set_instance_extras

from samebits.backends.webgpu.errors import explained, one_line
from samebits.core.errors import OutOfMemory, Unavailable

WANTED_FEATURES = ("timestamp-query",)  # for benchmarks only
# What every device grants. Shaders are held to it everywhere: one that runs here runs elsewhere.
GRANTED = {
    "max-storage-buffers-per-shader-stage": 8,
    "max-compute-invocations-per-workgroup": 256,
    "max-compute-workgroup-storage-size": 16384,
    "max-compute-workgroups-per-dimension": 65535,
}
PIECE_BYTES = 4 << 20  # of one write: wgpu copies it, and a device that has no room for the copy is lost
MAX_PENDING_BYTES = 32 << 20  # written and not yet on the device
NO_ADAPTER = "No suitable graphics adapter"  # as wgpu words it
NO_DRIVER = "no driver for Vulkan, Metal or D3D12 was found; Debian's mesa-vulkan-drivers has one that needs no GPU"


class Gpu:
    """A device with its queue. `device` and `queue` are wgpu's.

    max_binding_bytes   of one tensor that a shader sees; 128 MiB on the smallest devices
    """

    def __init__(self, adapter: Any) -> None:
        self.features = tuple(name for name in WANTED_FEATURES if name in adapter.features)
        self.adapter = adapter
        self.device = adapter.request_device_sync(required_features=list(self.features), required_limits=GRANTED)
        self.queue = self.device.queue
        limits = self.device.limits
        self.max_binding_bytes = min(limits["max-storage-buffer-binding-size"], limits["max-buffer-size"])
        self._pending_bytes, self._uploads = 0, Lock()
        self._fence = self.buffer(16)  # read in order to wait

    @property
    def name(self) -> str:
        """The device, and the API it is reached by."""
        info = self.adapter.info
        return f"{info['device']} ({info['backend_type']})"

    @property
    def driver(self) -> str:
        """The driver and its version, as it calls itself."""
        return str(self.adapter.info["description"])

    def buffer(self, num_bytes: int, usage: int | None = None) -> Any:
        """Memory of at least so many bytes, a multiple of 16; zeroed. OutOfMemory where there is no room."""
        size = max(16, -(-num_bytes // 16) * 16)
        if size > self.device.limits["max-buffer-size"]:
            raise OutOfMemory(f"webgpu: {_mib(size)} MiB do not fit into one buffer of {self.name}")
        flags = (
            wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.UNIFORM | wgpu.BufferUsage.COPY_SRC | wgpu.BufferUsage.COPY_DST
        )
        with explained(f"{_mib(size)} MiB of memory on {self.name}"):
            return self.device.create_buffer(size=size, usage=usage or flags)

    def write(self, memory: Any, data: np.ndarray, start: int = 0) -> None:
        """Bytes to the device, a multiple of 4 at a multiple of 4; `data` may be reused on return.

        Large ones go in pieces, and wait where too many are on their way: the host keeps a copy of those.
        """
        flat = data.reshape(-1).view(np.uint8)
        with explained(f"{_mib(flat.nbytes)} MiB to {self.name}"):
            if flat.nbytes <= PIECE_BYTES:
                if flat.nbytes:
                    self.queue.write_buffer(memory, start, flat)
                return
            for at in range(0, flat.nbytes, PIECE_BYTES):
                piece = flat[at : at + PIECE_BYTES]
                with self._uploads:  # others wait here too while what is pending goes out
                    self.queue.write_buffer(memory, start + at, piece)
                    self._sent(piece.nbytes)

    def texture(self, texels: np.ndarray) -> Any:
        """A view of a texture that holds uint32 [height, width, 4]; `texels` may be reused on return."""
        height, width, _ = texels.shape
        kinds = wgpu.TextureUsage
        usage = kinds.TEXTURE_BINDING | kinds.STORAGE_BINDING | kinds.COPY_DST
        row_bytes = width * 16
        rows = max(1, PIECE_BYTES // max(1, row_bytes))
        with explained(f"{_mib(texels.nbytes)} MiB of weights on {self.name}"):
            size = (max(1, width), max(1, height), 1)
            made = self.device.create_texture(size=size, format="rgba32uint", usage=usage)
            for at in range(0, height if width else 0, rows):
                piece = texels[at : at + rows]
                with self._uploads:
                    target = {"texture": made, "origin": (0, at, 0)}
                    layout = {"bytes_per_row": row_bytes, "rows_per_image": len(piece)}
                    self.queue.write_texture(target, np.ascontiguousarray(piece), layout, (width, len(piece), 1))
                    self._sent(piece.nbytes)
            return made.create_view()

    def _sent(self, num_bytes: int) -> None:
        """Waits where too much is on its way; the caller holds the lock."""
        self._pending_bytes += num_bytes
        if self._pending_bytes >= MAX_PENDING_BYTES:
            self.queue.read_buffer(self._fence, 0, 4)  # sends and waits
            self._pending_bytes = 0

    def read(self, memory: Any, num_bytes: int) -> np.ndarray:
        """uint8: the first bytes of a memory, a multiple of 4; waits for the work before."""
        if not num_bytes:
            return np.zeros(0, np.uint8)
        with explained(f"{_mib(num_bytes)} MiB from {self.name}"):
            return np.frombuffer(self.queue.read_buffer(memory, 0, num_bytes), np.uint8)


def _mib(num_bytes: int) -> str:
    return f"{num_bytes / 2**20:,.1f}"


def open_device() -> Gpu:
    """A device of its own; Unavailable with the reason. GL is left out: it has no compute worth the name."""
    with suppress(RuntimeError):  # the process has an instance already: another device's, or the application's own
        set_instance_extras(backends=["Vulkan", "Metal", "DX12"])
    try:
        return Gpu(wgpu.gpu.request_adapter_sync(power_preference="high-performance"))
    except Exception as error:
        reason = NO_DRIVER if NO_ADAPTER in str(error) else one_line(error)
        raise Unavailable(f"no WebGPU device: {reason}") from None


@cache
def gpu() -> Gpu:
    """The device of this process; Unavailable with the reason."""
    if "XDG_RUNTIME_DIR" not in os.environ:
        # Mesa's layer that prefers the display's GPU asks Wayland for it, whose library complains on standard error.
        os.environ.setdefault("NODEVICE_SELECT", "1")
    return open_device()
