"""Finding backends: those in the tree, then those of installed packages. No failure is lost."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module

from samebits.backends.interface import INTERFACE_VERSION, Backend, Caps
from samebits.core.errors import Unavailable, UnknownName

GROUP = "samebits.backends"
DEFAULT_ORDER = ("cpu", "reference")  # what runs when nothing is asked for: the first that is available
IN_TREE = {  # each a class, or a function that gives a backend
    "cpu": "samebits.backends.cpu:CpuBackend",
    "reference": "samebits.backends.reference:ReferenceBackend",
    "cuda": "samebits.backends.gpu:cuda",
    "rocm": "samebits.backends.gpu:rocm",
    "webgpu": "samebits.backends.webgpu:webgpu",
    "null": "samebits.backends.null:NullBackend",
}
ON_GPU = ("cuda", "rocm", "webgpu")
NEED_EXTRAS = ON_GPU  # present where torch or wgpu is, so no page that is checked in may depend on them


@dataclass(frozen=True)
class Found:
    """A backend by name: usable, or the reason why not."""

    name: str
    origin: str  # "built in", or the distribution that registered it
    backend: Backend | None
    caps: Caps | None
    reason: str = ""


def _load_maker(target: str) -> Callable[..., Backend]:
    module, _, attribute = target.partition(":")
    loaded: Callable[..., Backend] = getattr(import_module(module), attribute)
    return loaded


def _try(name: str, origin: str, load: Callable[[], Callable[[], Backend]]) -> Found:
    """Loads and probes one backend; whatever goes wrong becomes its reason."""
    try:
        backend = load()()
        if backend.interface_version != INTERFACE_VERSION:
            reason = f"built for interface version {backend.interface_version}, this is {INTERFACE_VERSION}"
            return Found(name, origin, None, None, reason)
        return Found(name, origin, backend, backend.probe())
    except Unavailable as error:
        return Found(name, origin, None, None, str(error))
    except Exception as error:  # a broken plug-in must not take the others with it
        return Found(name, origin, None, None, f"failed to load: {type(error).__name__}: {error}")


@cache
def _in_tree(name: str) -> Found:
    """One of ours, on its own: a toolchain that nobody asked for is not imported."""
    return _try(name, "built in", lambda: _load_maker(IN_TREE[name]))


@cache
def plug_ins() -> tuple[Found, ...]:
    """Those of installed packages. One may not take a name that is in use."""
    from importlib.metadata import entry_points  # slow to import, and a backend in the tree is found without it

    found: list[Found] = []
    for entry in entry_points(group=GROUP):
        origin = entry.dist.name if entry.dist else entry.value
        if entry.name in {*IN_TREE, *(f.name for f in found)}:
            found.append(Found(entry.name, origin, None, None, f"the name {entry.name!r} is taken"))
        else:
            found.append(_try(entry.name, origin, entry.load))
    return tuple(found)


def discover() -> tuple[Found, ...]:
    """Every known backend, in-tree first."""
    return (*(_in_tree(name) for name in IN_TREE), *plug_ins())


def get(name: str) -> Found:
    """The usable backend of that name, or of a class written as "module:Class" that is not installed yet.

    UnknownName lists what there is, Unavailable carries the reason.
    """
    if ":" in name:
        if os.getcwd() not in sys.path:  # a class in the folder one works in
            sys.path.insert(0, os.getcwd())
        matches = [_try(name, name.partition(":")[0], lambda: _load_maker(name))]
    elif name in IN_TREE:
        matches = [_in_tree(name)]
    else:
        matches = [f for f in plug_ins() if f.name == name]
    if not matches:
        raise UnknownName("backend", name, [*IN_TREE, *(f.name for f in plug_ins())])
    if matches[0].backend is None:
        raise Unavailable(f"backend {name}: {matches[0].reason}")
    return matches[0]


def expect_model(name: str) -> None:
    """Says that a model will be run on a backend, before anything of it is imported: some have work to do meanwhile."""
    if name in IN_TREE:
        module = import_module(IN_TREE[name].partition(":")[0])
        if hasattr(module, "expect_model"):
            module.expect_model()


def described(target: str) -> Found:
    """A GPU that is not here, written as "sm_90/132": kernels can be compiled for it, and nothing runs.

    BadInput for another text, Unavailable where its toolchain is missing or compiles nothing.
    """
    backend: Backend = _load_maker("samebits.backends.gpu:described")(target)
    if not backend.compiles_kernels:
        raise Unavailable("warm: kernels are interpreted here, since TRITON_INTERPRET is set; needs it unset")
    return Found(backend.name, "built in", backend, backend.probe())


def made(name: str) -> Backend:
    """One of ours before it is probed: its kernels can be asked, and no device need be there. Unavailable without its
    toolchain."""
    return _load_maker(IN_TREE[name])()


def default_name() -> str:
    """Return the backend to run on if none is named. Warn on stderr, once per process, if it is not the fast one."""
    name = next(name for name in DEFAULT_ORDER if _in_tree(name).backend is not None)
    if name != DEFAULT_ORDER[0]:
        _warn_of_slow_backend(name)
    return name


@cache
def _warn_of_slow_backend(name: str) -> None:
    """Say on stderr that the default backend is slow, and what to install."""
    mark = "\x1b[1;33mwarning:\x1b[0m" if sys.stderr.isatty() else "warning:"
    reason = _in_tree(DEFAULT_ORDER[0]).reason
    print(f"{mark} this installation is SLOW: it runs on backend {name}: {reason}", file=sys.stderr, flush=True)
