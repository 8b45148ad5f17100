"""All that a backend implements, on one page.

Required: `name`, `probe`, `kernels`, `alloc`, `copy_in`, `copy_out`, `compile`.
Optional: everything with a body.
Memory is typed and has no address: a device may tile it, and need not be able to map it. Views are lazy:
a view is a record of steps that a backend may honour in place or resolve by a copy.
A backend outside the tree registers its class under the entry-point group `samebits.backends`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from samebits.core.errors import BadInput, Unsupported
from samebits.core.format import FORMATS, HostTensor, Packed, spec_bytes
from samebits.core.host_memory import host_memory
from samebits.core.shapes import TensorSpec
from samebits.core.tiers import Tier
from samebits.graph import Graph
from samebits.kernels.record import KernelTable
from samebits.ops.evaluate import spec_of

INTERFACE_VERSION = 1


CompileProgress = Callable[[int, int, float], None]  # (kernels compiled, kernels in all, seconds so far)


@dataclass(frozen=True)
class Compiled:
    """A kernel that was compiled ahead, how long that took, and the reason where it failed."""

    name: str
    seconds: float
    error: str = ""


@dataclass(frozen=True)
class Compilation:
    """What was compiled ahead since a backend was made.

    num_kernels   that graphs launch, all sizes together
    per_size      how many of them steps of each size launch, by what the size is called
    compiled      those that were not on disk
    """

    num_kernels: int = 0
    per_size: Mapping[str, int] = field(default_factory=dict)
    compiled: Sequence[Compiled] = ()


@dataclass(frozen=True)
class Caps:
    """What `probe` found. `refuted` holds tiers the device cannot keep, with the reason (it contracts sums, say);
    `driver` is the version of the driver, for the certificate."""

    device: str
    memory_bytes: int | None = None
    features: tuple[str, ...] = ()
    refuted: Mapping[Tier, str] = field(default_factory=dict)
    driver: str = ""


@dataclass(frozen=True)
class Memory:
    """Memory of a device, in bytes.

    is_host           it is the host's, which takes pages only once they are written, and other programs need it too
    max_tensor_bytes  the largest tensor that kernels can read, if there is such a bound
    """

    total_bytes: int
    free_bytes: int
    is_host: bool = False
    max_tensor_bytes: int | None = None


@dataclass(frozen=True)
class Workspace:
    """An estimate of the bytes that the steps of a graph take beside weights and caches.

    num_bytes        for steps of the graph's largest size
    bytes_per_entry  more of them for each entry of all page tables together, "NI" in a step's arrays
    """

    num_bytes: int
    bytes_per_entry: int = 0


class Buffer(ABC):
    """Device memory of one tensor. Opaque: only its own backend looks inside."""

    spec: TensorSpec


@dataclass(frozen=True)
class View:
    """A lazy view: steps applied to a buffer in order.

    A step is ("slice", axis, start, stop), ("permute", axes) or ("reshape", shape).
    """

    base: Buffer
    steps: tuple[tuple[Any, ...], ...]
    spec: TensorSpec

    def resolve(self, host: HostTensor) -> HostTensor:
        """The steps applied to a host copy of the base. Block formats allow them on all axes but the last."""
        array = host.data if isinstance(host, Packed) else host
        for kind, *arguments in self.steps:
            if kind == "slice":
                axis, start, stop = arguments
                array = array[(slice(None),) * axis + (slice(start, stop),)]
            elif kind == "permute":
                array = array.transpose(arguments[0])
            else:
                shape = arguments[0]
                stored = host.format.row_bytes(shape[-1]) if isinstance(host, Packed) else shape[-1]
                array = array.reshape(*shape[:-1], stored)
        return Packed(host.format, array, host.scale) if isinstance(host, Packed) else array


class Executable(ABC):
    """A compiled graph with its buffers bound. Nothing is allocated between `prepare` and the end of `run`.

    It runs many times, and a run depends on three things alone: what is bound when it starts, what that memory holds
    then, and the sizes of the last `prepare`. Of an earlier run nothing is kept but what the graph wrote into its
    inputs. Between runs a caller may bind other buffers and views, copy into those that are bound, have other
    executables write to them, and change the sizes; what is bound then has the new sizes, never more rows than the
    step. With fewer rows than the step, or rows of another length, a run is refused (`bound_sizes.py`). Only a weight
    (`Graph.kinds`) is constant while it is bound: what is copied into it counts from its next `bind`.
    """

    @abstractmethod
    def bind(self, name: str, buffer: Buffer | View) -> None:
        """Gives a graph input or output its memory. Caches are updated in place; an output needs no binding.

        A view may be written through: verify hands every tensor over as a slice of rows of a larger buffer.
        """

    def layout(self, name: str) -> str:
        """The layout `alloc` should give the memory of an input. Optional: any other works too, perhaps slower."""
        return "row-major"

    def feed(self, arrays: Mapping[str, np.ndarray]) -> bool:
        """Takes all host arrays of a step at once, 32 bits per element, and their sizes with them.

        Optional, for a device that is reached by one copy: False says that they are to be bound one by one instead.
        """
        return False

    def compile_ahead(self, is_needed_first: bool = True) -> None:
        """Starts to compile what runs of any size will need, beside whatever follows. Optional.

        is_needed_first: whether `Backend.await_compiled` waits for it.
        """

    def reserve(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Allocate what later runs keep, such as a captured graph's memory, for arrays of the largest step kept so.

        Raise OutOfMemory if the device lacks it. Optional.
        """

    def prepare(self, dims: Mapping[str, int]) -> None:
        """Sets the symbolic dimensions of the coming runs, until the next call; optional for graphs without any."""

    @abstractmethod
    def run(self) -> None:
        """Executes all nodes. May return before the device has finished; `Backend.sync` waits."""

    @abstractmethod
    def output(self, index: int) -> Buffer:
        """The buffer of a graph output, the base where a view was bound; it lasts until the next `run`."""


class Stopwatch(ABC):
    """For benchmarks, on a device whose host clock would measure the host."""

    cache_bytes: int  # of the device's last cache: inputs in turn must exceed it

    @abstractmethod
    def random(self, spec: TensorSpec, seed: int) -> Buffer:
        """A plain tensor of bell-shaped values, made on the device."""

    @abstractmethod
    def samples(self, runs: Sequence[Callable[[], object]]) -> list[float]:
        """Seconds of one of these runs, measured several times: all of them in turn, one after another without the
        host. What they do first (compile, allocate) is not counted."""

    @abstractmethod
    def ceilings(self) -> dict[str, float]:
        """What the device reaches here and now: "read bytes/s", "copy bytes/s", "bf16 operations/s"."""


class Backend(ABC):
    """One kind of device. Has no method per op: a new op needs a kernel, never a change here."""

    name: str
    interface_version: int = INTERFACE_VERSION
    runs_ahead: bool = False  # whether `run` returns before the device has finished: the host may work meanwhile
    step_tokens: int = 512  # that a step of a model aims at: enough for products to be fast, few enough to be over soon
    default_sequences: int = 32  # requests that run at once where nothing is stated
    compiles_kernels: bool = False  # whether a kernel is compiled where it is first launched, unless done ahead
    flushing_compiles: bool = False  # whether `flushing` compiles kernels anew: then verify asks on named cases only

    @abstractmethod
    def probe(self) -> Caps:
        """What is here. Raises Unavailable with the reason; must not leave anything running."""

    @abstractmethod
    def kernels(self) -> tuple[KernelTable, ...]:
        """Kernel tables by language, the preferred one first. Importing them here keeps toolchains lazy."""

    @abstractmethod
    def alloc(self, spec: TensorSpec, layout: str = "row-major") -> Buffer:
        """Memory for a tensor, symbolic dimensions at their upper bound; contents undefined."""

    @abstractmethod
    def copy_in(self, buffer: Buffer, host: HostTensor) -> None:
        """Host to device. The host tensor has the buffer's shape and format and may be reused on return.

        A buffer that is bound already keeps its binding: the next run sees what was copied.
        """

    @abstractmethod
    def copy_out(self, buffer: Buffer | View) -> HostTensor:
        """Device to a fresh host tensor; waits for the work before it."""

    def peek(self, buffer: Buffer) -> HostTensor:
        """The contents, to be read at once: they may change with the next run. Optional: the default copies them."""
        return self.copy_out(buffer)

    @abstractmethod
    def compile(self, graph: Graph, tier: Tier) -> Executable:
        """Choose a kernel for every node. Raise Unsupported, with the node and every refusal, if a node has none.

        Sizes that are known only at run time may be refused in the same way. No other graph may be refused: what
        `samebits support` lists must run.
        """

    def adopt(self, host: HostTensor) -> Buffer:
        """A buffer with the tensor's contents, which the caller gives away. Optional: the default copies it."""
        buffer = self.alloc(spec_of(host))
        self.copy_in(buffer, host)
        return buffer

    def adopt_packed(self, packer: Callable[[Any], Any], host: HostTensor) -> Buffer:
        """A constant rearranged by a kernel's `prepack`. Optional: the default does it on the host."""
        return self.adopt(packer(host))

    def memory(self) -> Memory:
        """Return the memory that weights, workspace and caches share. Optional: the default is the host's."""
        return Memory(*host_memory(), is_host=True)

    def stored_bytes(self, spec: TensorSpec) -> int:
        """Return the bytes that `alloc` takes for a tensor. Optional."""
        return spec_bytes(spec)

    def workspace(self, graph: Graph) -> Workspace:
        """Return what steps of a graph take beside its inputs. Optional: the default is the plan for one arena."""
        from samebits.passes.plan_memory import plan_memory

        return Workspace(plan_memory(graph).total_bytes)

    def await_compiled(self, progress: CompileProgress | None = None, everything: bool = False) -> Compilation:
        """Waits for what `Executable.compile_ahead` and the steps since have started, or for everything that steps of
        any size need. Optional."""
        return Compilation()

    def trim(self) -> None:
        """Called once a model is loaded: memory that loading left over may go. Optional."""

    def sync(self) -> None:
        """Waits for all work. Optional where every call is synchronous.

        BadInput where a kernel that cannot throw met a value it refuses, once: a later `sync` knows nothing of it.
        """

    def result(self, buffer: Buffer) -> HostTensor:
        """`sync`, and then a copy of a buffer. Optional: a device that is reached by one wait does both in it."""
        self.sync()
        return self.copy_out(buffer)

    def stopwatch(self) -> Stopwatch | None:
        """Times on the device's own clock. Optional: without it benchmarks use the host's."""
        return None

    def flushing(self) -> AbstractContextManager[None] | None:
        """Inside it, subnormals count as zero in all arithmetic, where a backend can be asked for that; verify compares
        the bits. Optional."""
        return None

    def sources(
        self, graph: Graph, numbers: set[int], dims: Mapping[str, int], tier: Tier
    ) -> Iterator[tuple[str, object]]:
        """What kernels of some nodes run at these sizes: texts, each beside itself with comments. Optional."""
        raise Unsupported(f"{self.name} has no kernels whose text is put together here")

    def set_threads(self, count: int) -> None:
        """Run kernels on exactly `count` host threads from now on. Optional: a backend without them ignores it."""

    def limit_threads(self, count: int) -> None:
        """Run kernels on at most `count` host threads from now on, and on fewer while that is faster. Optional: the
        default sets the number."""
        self.set_threads(count)

    def view(self, base: Buffer | View, step: tuple[Any, ...]) -> View:
        """A lazy view one step further. Optional: the default only records the step."""
        root, steps = (base.base, base.steps) if isinstance(base, View) else (base, ())
        return View(root, (*steps, step), _viewed_spec(base.spec, step))

    def materialize(self, view: View) -> Buffer:
        """A buffer with the view's contents. Optional: the default goes through the host."""
        buffer = self.alloc(view.spec)
        self.copy_in(buffer, self.copy_out(view))
        return buffer


def _viewed_spec(spec: TensorSpec, step: tuple[Any, ...]) -> TensorSpec:
    """The spec after one view step; BadInput when the step does not fit or would cut a block."""
    kind, *arguments = step
    shape = list(spec.shape)
    rank, is_block = len(shape), FORMATS[spec.format].is_block
    if kind == "slice" and len(arguments) == 3:
        axis, start, stop = arguments
        if 0 <= axis < rank - is_block and isinstance(shape[axis], int) and 0 <= start <= stop <= shape[axis]:
            shape[axis] = stop - start
            return TensorSpec(tuple(shape), spec.format)
    elif kind == "permute" and sorted(arguments[0]) == list(range(rank)):
        if not is_block or arguments[0][-1] == rank - 1:
            return TensorSpec(tuple(shape[a] for a in arguments[0]), spec.format)
    elif kind == "reshape" and arguments[0] and math.prod(arguments[0]) == spec.num_elements:
        if arguments[0][-1] % FORMATS[spec.format].block_len == 0:
            return TensorSpec(tuple(arguments[0]), spec.format)
    raise BadInput("view", "step", step, f"a slice, permute or reshape that fits {spec}")
