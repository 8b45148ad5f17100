"""Bytes on their way to the device: large tensors go in pieces, from several threads, and few stay on the host."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from samebits.backends.interface import Backend
from samebits.core.shapes import TensorSpec

NUM_WORDS = (40 << 18) + 12  # more than may be pending, and no multiple of a piece

# The same 64 MiB eight times: what a device has no use for yet must not pile up on the host.
AGAIN_AND_AGAIN = """
import resource
import numpy as np
from samebits.backends.webgpu.backend import WebGpuBackend
from samebits.core.shapes import TensorSpec

backend = WebGpuBackend()
host = np.ones(64 << 18, np.float32)
buffer = backend.alloc(TensorSpec(host.shape, "f32"))
backend.copy_in(buffer, host)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for _ in range(8):
    backend.copy_in(buffer, host)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


def test_large_tensors_arrive_whole_from_several_threads(webgpu: Backend) -> None:
    hosts = [np.arange(number, number + NUM_WORDS, dtype=np.uint32) for number in range(3)]
    buffers = [webgpu.alloc(TensorSpec(host.shape, "u32")) for host in hosts]
    with ThreadPoolExecutor(len(hosts)) as pool:
        list(pool.map(webgpu.copy_in, buffers, hosts))
    for buffer, host in zip(buffers, hosts, strict=True):
        assert np.array_equal(webgpu.copy_out(buffer), host)


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux for the most memory there was")
@pytest.mark.usefixtures("webgpu")
def test_the_host_keeps_few_of_the_bytes_that_it_sent() -> None:
    finished = subprocess.run([sys.executable, "-c", AGAIN_AND_AGAIN], capture_output=True, text=True, timeout=120)
    assert int(finished.stdout) < 150, finished.stderr  # MiB; all that was sent is 512
