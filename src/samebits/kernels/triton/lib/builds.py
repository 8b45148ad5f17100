"""Launches of Triton kernels as builds: noted without a device, compiled in any process, found by a launch later.

A launch is specialised by Triton itself, under a driver that only names a target, and handed to the hook that Triton
calls before it compiles. So no signature is listed anywhere, and what is noted is what would be launched.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import sysconfig
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import cache, cached_property
from importlib import import_module
from typing import Any

import torch
import triton
import triton.runtime.jit
from triton import knobs
from triton.backends import backends
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase
from triton.compiler import ASTSource, make_backend
from triton.compiler.compiler import get_cache_invalidating_env_vars
from triton.runtime.cache import get_cache_key, get_cache_manager
from triton.runtime.driver import driver
from triton.runtime.jit import JITFunction

from samebits.kernels.ahead import Build, is_noting, note, noting
from samebits.kernels.triton.lib.devices import DeviceFacts, describing

ROOM = "samebits.kernels.triton."
LONGEST_NAME = 150  # of a file in Triton's cache
LAUNCHER_MARK = f"launcher{sysconfig.get_config_var('EXT_SUFFIX')}"  # beside a kernel whose launcher is compiled too

_device_numbers = itertools.count(1 << 20)  # a fresh one each time: Triton keeps by device what it compiled
_one_at_a_time = threading.RLock()  # while Triton's own functions are replaced


class TargetOnly(DriverBase):
    """A driver without a device: it answers what a launch asks before it compiles."""

    def __init__(self, target: GPUTarget) -> None:
        super().__init__()
        self._target, self._device = target, next(_device_numbers)

    @classmethod
    def is_active(cls) -> bool:
        return True

    def get_current_target(self) -> GPUTarget:
        return self._target

    def get_current_device(self) -> int:
        return self._device

    def get_current_stream(self, _device: int) -> int:
        return 0

    def get_active_torch_device(self) -> torch.device:
        return torch.device("meta")

    def map_python_to_cpp_type(self, ty: str) -> str:
        raise NotImplementedError("nothing is launched")

    def get_benchmarker(self) -> Any:
        raise NotImplementedError("nothing is launched")


@contextmanager
def active_target(target: GPUTarget) -> Iterator[None]:
    """Triton sees this target for as long, in the whole process."""
    before = driver._active
    driver.set_active(TargetOnly(target))
    try:
        yield
    finally:
        driver._active = before  # `reset_active` would look for a device


@dataclass(frozen=True)
class TritonBuild(Build):
    """One specialisation of one kernel function, as a launch on `target` asks for it."""

    module: str
    function: str
    signature: dict[str, Any]
    constants: dict[tuple[int, ...], Any]
    attrs: dict[tuple[int, ...], Any]
    options: dict[str, Any]
    target: GPUTarget

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}  # not what was computed since

    @property
    def name(self) -> str:  # type: ignore[override]
        """Its place in kernels/triton and its name."""
        return f"{self.module.removeprefix(ROOM)}.{self.function}"

    @cached_property
    def source(self) -> ASTSource:
        kernel = getattr(import_module(self.module), self.function)
        return ASTSource(kernel, self.signature, self.constants, self.attrs)

    @cached_property
    def key(self) -> str:  # type: ignore[override]
        """Triton's: the name of the kernel's folder in its cache."""
        compiler = make_backend(self.target)
        options = compiler.parse_options(dict(self.options))
        text = get_cache_key(self.source, compiler, options, get_cache_invalidating_env_vars())
        return hashlib.sha256(text.encode()).hexdigest()

    def is_built(self) -> bool:
        cache, file_name = get_cache_manager(self.key), f"{self.source.name[:LONGEST_NAME]}.json"
        if file_name not in (cache.get_group(file_name) or {}):
            return False
        return cache.get_file(LAUNCHER_MARK) is not None or launcher_class(self.target.backend) is None

    def build(self) -> None:
        """The kernel, and the compiled function that launches it where the GPU's driver, which that needs, is here."""
        compiled = self.compiled()
        make_launcher = launcher_class(self.target.backend)
        if make_launcher is not None:
            make_launcher(self.source, compiled.metadata)
            get_cache_manager(self.key).put("", LAUNCHER_MARK)

    def compiled(self) -> Any:
        """The kernel, compiled or found; kernels may ask which target they are compiled for."""
        with active_target(self.target):
            return triton.compile(self.source, target=self.target, options=self.options)


@cache
def launcher_class(maker: str) -> type | None:
    """What makes the launcher of a compiled kernel; None where the driver of the maker's GPUs is not installed."""
    try:
        return backends[{"cuda": "nvidia", "hip": "amd"}[maker]].driver().launcher_cls
    except Exception:  # whatever looking for a library raises, it was not found; a launch says why
        return None


class _Drivers:
    """Triton's drivers, with that of a described GPU for the threads whose launches are noted."""

    def __init__(self, described: TargetOnly) -> None:
        self._described = described

    @property
    def active(self) -> DriverBase:
        return self._described if is_noting() else driver.active


@contextmanager
def noting_launches(facts: DeviceFacts) -> Iterator[dict[str, Build]]:
    """Launches of this thread on tensors without memory are noted, as they would be made on such a GPU."""
    run = JITFunction.run

    def run_or_note(self: JITFunction, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        return run(self, *args, grid=grid, warmup=warmup or is_noting(), **kwargs)

    def hook(*, fn: Any, compile: dict[str, Any], **told: Any) -> Any:
        if not is_noting():
            return hook_before(fn=fn, compile=compile, **told) if hook_before else None
        said = json.loads(compile["specialization_data"])["options"]
        options = {name: tuple(value) if isinstance(value, list) else value for name, value in said.items()}
        parts = compile["signature"], compile["constants"], compile["configs"][0], options
        note(TritonBuild(fn.jit_function.module, fn.jit_function.__name__, *parts, facts.target))
        return True  # Triton then compiles nothing

    with _one_at_a_time, noting() as notes, describing(facts):
        hook_before, drivers_before = knobs.runtime.jit_cache_hook, triton.runtime.jit.driver
        JITFunction.run = run_or_note
        triton.runtime.jit.driver = _Drivers(TargetOnly(facts.target))
        knobs.runtime.jit_cache_hook = hook
        try:
            yield notes
        finally:
            JITFunction.run, triton.runtime.jit.driver = run, drivers_before
            knobs.runtime.jit_cache_hook = hook_before
