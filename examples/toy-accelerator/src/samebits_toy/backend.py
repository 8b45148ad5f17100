"""The backend: what Samebits calls, in the order in which it calls it."""

from __future__ import annotations

from samebits.backends.interface import Backend, Buffer, Caps, View
from samebits.core.errors import BadInput
from samebits.core.format import HostTensor
from samebits.core.shapes import TensorSpec
from samebits.core.tiers import Tier
from samebits.graph import Graph
from samebits.kernels.record import KernelTable
from samebits_toy.device import refuted_tiers, table
from samebits_toy.executable import ToyExecutable
from samebits_toy.memory import TileBuffer, download, upload


class ToyBackend(Backend):
    """A tile accelerator that does not exist. Every call is synchronous, so `sync` is left as it is."""

    name = "toy"

    def probe(self) -> Caps:
        return Caps(
            device="pretend accelerator, tiles of 32 x 32",
            features=("unmappable memory", "int8 dot of 32"),
            refuted=refuted_tiers(),
        )

    def kernels(self) -> tuple[KernelTable, ...]:
        from samebits_toy import heads, matmul, paged, rows, sample  # noqa: F401  (registers kernels; listing devices imports none)

        return (table,)

    def alloc(self, spec: TensorSpec, layout: str = "row-major") -> TileBuffer:
        return TileBuffer(spec)

    def copy_in(self, buffer: Buffer, host: HostTensor) -> None:
        if not isinstance(buffer, TileBuffer):
            raise BadInput("copy_in", "buffer", type(buffer).__name__, "a buffer of this backend")
        upload(buffer, host)

    def copy_out(self, buffer: Buffer | View) -> HostTensor:
        base = buffer.base if isinstance(buffer, View) else buffer
        if not isinstance(base, TileBuffer):
            raise BadInput("copy_out", "buffer", type(base).__name__, "a buffer of this backend")
        host = download(base)
        return buffer.resolve(host) if isinstance(buffer, View) else host

    def compile(self, graph: Graph, tier: Tier) -> ToyExecutable:
        return ToyExecutable(self, graph, tier)
