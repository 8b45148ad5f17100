"""Launches of calls that no memory here could hold: noted with their grids and the values of their integers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from triton._C.libtriton import ir, passes
from triton.compiler.compiler import make_backend
from triton.runtime.jit import JITFunction

from samebits.backends.support import op_call
from samebits.core.shapes import TensorSpec
from samebits.core.tiers import Tier
from samebits.kernels.record import Kernel
from samebits.kernels.triton.lib import builds
from samebits.kernels.triton.lib.builds import TritonBuild, active_target, noting_launches
from samebits.kernels.triton.lib.devices import DeviceFacts
from samebits.kernels.triton.lib.tensors import DTYPES, Blocks, Tiled
from samebits.kernels.triton.lib.weights import tiled_bytes
from samebits.kernels.triton.table import kernels_for
from samebits.ops import OPS

LONGEST_PAGE = 1 << 22
FORMAT_OF = {dtype: name for name, dtype in DTYPES.items()}
# What an op's contract says of the integers behind an argument: at least 0, at most the first of these arguments that
# the kernel has, or this number. Others may be any int32.
LOADED: dict[str, tuple[str | int, ...]] = {
    "qo_ptr": ("num_tokens",),
    "qo_indptr": ("num_tokens",),
    "indptr_ptr": ("num_entries", "num_pairs", "num_tokens", "T"),
    "kv_indptr": ("num_indices",),
    "last_ptr": (LONGEST_PAGE,),
    "kv_last": (LONGEST_PAGE,),
    "positions_ptr": (1 << 30,),
    "pairs_ptr": ("num_pairs",),
}


@dataclass(frozen=True)
class Launched:
    """One launch: its kernel, its grid, and of every argument that is left at run time its name and its integer."""

    build: TritonBuild
    grid: tuple[int, ...]
    arguments: tuple[tuple[str, str, int | None], ...]  # the parameter's name, the field's in a record, the value

    def named(self, names: list[str]) -> tuple[dict[str, int], dict[str, tuple[int, int]]]:
        """Return the integers by the names that the kernel's code gives its arguments, and what loaded ones may be."""
        own = list(self.arguments)
        values: dict[str, int] = {}
        fields: dict[str, str] = {}
        for name in names:
            base = name if any(name == parameter for parameter, _, _ in own) else name.rpartition("_")[0]
            at = next((i for i, (parameter, _, _) in enumerate(own) if parameter == base), None)
            if at is None:
                continue  # part of a descriptor
            _, field, value = own.pop(at)
            fields[name] = field
            if value is not None:
                values[name] = value
        by_field = {fields[name]: value for name, value in values.items()}
        loaded = {}
        for name, field in fields.items():
            limits = (by_field.get(limit) if isinstance(limit, str) else limit for limit in LOADED.get(field, ()))
            limit = next((limit for limit in limits if limit is not None), None)
            if limit is not None:
                loaded[name] = (0, limit)
        return values, loaded


def leaves_of(name: str, field: str, kind: Any, value: Any) -> Iterator[tuple[str, str, int | None]]:
    """Yield the parts of an argument that a kernel is not compiled for; kind: its entry of the signature."""
    if isinstance(kind, tuple):
        fields = getattr(value, "_fields", [field] * len(kind))
        for part, own, said in zip(kind, value, fields, strict=True):
            yield from leaves_of(name, said, part, own)
    elif kind != "constexpr":
        yield name, field, int(value) if kind in ("i32", "i64") else None


@contextmanager
def launches(facts: DeviceFacts) -> Iterator[list[Launched]]:
    """Collect the Triton launches inside, on tensors without memory, as a GPU of these facts would get them."""
    found: list[Launched] = []
    under_way: list[tuple[dict[str, Any], tuple[int, ...]]] = []
    run, note = JITFunction.run, builds.note

    def run_and_tell(self: JITFunction, *given: Any, grid: Any, warmup: bool, **named: Any) -> Any:
        options = {name: value for name, value in named.items() if name in self.arg_names}
        under_way.append((dict(zip(self.arg_names, given, strict=False)) | options, tuple(grid)))
        try:
            return run(self, *given, grid=grid, warmup=warmup, **named)
        finally:
            under_way.pop()

    def note_launch(build: Any) -> None:
        if isinstance(build, TritonBuild):
            arguments, grid = under_way[-1]
            kinds = build.signature.items()
            parts = tuple(part for name, kind in kinds for part in leaves_of(name, name, kind, arguments.get(name)))
            found.append(Launched(build, grid, parts))
        note(build)

    JITFunction.run, builds.note = run_and_tell, note_launch
    try:
        with noting_launches(facts):
            yield found
    finally:
        JITFunction.run, builds.note = run, note


def intermediate(build: TritonBuild) -> str:
    """Return a kernel in Triton's IR: functions called are in their callers, nothing is specific to a GPU."""
    maker = make_backend(build.target)
    options = maker.parse_options(dict(build.options))
    context = ir.context()
    ir.load_dialects(context)
    maker.load_dialects(context)
    generated = maker.get_codegen_implementation(options), maker.get_module_map()
    with active_target(build.target):
        module = build.source.make_ir(build.target, options, *generated, context)
    manager = ir.pass_manager(context)
    passes.common.add_inliner(manager)
    passes.common.add_canonicalizer(manager)
    passes.common.add_cse(manager)
    manager.run(module, "offsets")
    return str(module)


def kernels_of_call(
    facts: DeviceFacts, op_name: str, given: dict[str, Any], attrs: dict[str, Any]
) -> Iterator[tuple[Kernel, dict[str, Any]]]:
    """Yield the kernels that serve a call, one for each tier, each with its arguments, weights packed."""
    op, table = OPS[op_name], kernels_for(facts)
    specs = {name: spec_of_device(x) for name, x in given.items()}
    settings = {attr.name: attr.default for attr in op.attrs} | attrs
    arguments = {tensor.name: None for tensor in op.inputs} | given | settings
    chosen: dict[str, Kernel] = {}
    for tier in (Tier.FAST, Tier.INVARIANT, Tier.PORTABLE):
        call = op_call(op, specs, settings, tier)
        kernel = next((k for k in table[op_name] if k.refusal(call) is None), None)
        if kernel is not None:
            chosen[kernel.name] = kernel
    for kernel in chosen.values():
        weights = {name: tiled(given[name]) for name in kernel.prepack if isinstance(given.get(name), Blocks)}
        yield kernel, arguments | weights


def tiled(x: Blocks) -> Tiled:
    """Return what `tile_weight` makes of a weight, at once."""
    data = torch.empty(tiled_bytes(x.format, x.shape), dtype=torch.uint8, device=x.data.device)
    return Tiled(x.format, x.shape, data, x.scale)


def spec_of_device(x: torch.Tensor | Blocks) -> TensorSpec:
    if isinstance(x, Blocks):
        return TensorSpec(x.shape, x.format.name)
    return TensorSpec(tuple(x.shape), FORMAT_OF[x.dtype])
