"""Compilation of CUDA C++ at run time, and machine code that was compiled before: one file each, by a hash."""

from __future__ import annotations

import ctypes
import hashlib
import os
import sys
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from samebits.core.errors import Unavailable
from samebits.kernels.ahead import Build
from samebits.kernels.triton import cache_folder

LIBRARIES = ("libnvrtc.so.13", "libnvrtc.so.12")
SHARED = Path(__file__).parent / "lib"  # headers of all
OPTIONS = ("--std=c++17", "--fmad=false")


@cache
def library() -> ctypes.CDLL:
    """NVRTC, on the loader's path or in the packages that torch depends on; Unavailable where there is none."""
    folders = [Path(entry) / "nvidia" for entry in sys.path if entry]
    found = [str(path) for folder in folders for name in LIBRARIES for path in sorted(folder.glob(f"*/lib/{name}"))]
    for name in (*LIBRARIES, *found):
        with suppress(OSError):
            return ctypes.CDLL(name)
    raise Unavailable(f"{' and '.join(LIBRARIES)} are not installed; `pip install nvidia-cuda-nvrtc`")


@cache
def version() -> tuple[int, int]:
    major, minor = ctypes.c_int(), ctypes.c_int()
    library().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return major.value, minor.value


@dataclass(frozen=True)
class CudaBuild(Build):
    """One form of a kernel: a source file, with the headers beside it and in lib, and what it is compiled with."""

    source: Path
    defines: tuple[tuple[str, object], ...]
    arch: str

    @property
    def name(self) -> str:  # type: ignore[override]
        return f"{self.source.parent.name}/{self.source.name}"

    @property
    def options(self) -> list[str]:
        given = (f"-D{name}={value}" for name, value in self.defines)
        return [*OPTIONS, f"--gpu-architecture={self.arch}", *given]

    @property
    def key(self) -> str:  # type: ignore[override]
        key = (
            repr((self.source.name, self.options, version())).encode()
            + _text_hash(self.source.parent)
            + _text_hash(SHARED)
        )
        return hashlib.sha256(key).hexdigest()

    @property
    def kept(self) -> Path:
        """Where the machine code is kept: beside what Triton compiles, so that one folder can be shipped."""
        return cache_folder() / "samebits-cuda" / f"{self.key}.cubin"

    def is_built(self) -> bool:
        return self.kept.is_file()

    def build(self) -> None:
        self.code()

    def code(self) -> bytes:
        """The machine code; from the cache where it is there."""
        kept = self.kept
        with suppress(OSError):
            return kept.read_bytes()
        code = _compile(self.source, [*self.options, f"-I{self.source.parent}", f"-I{SHARED}"])
        _keep(kept, code)
        return code


@cache
def _text_hash(folder: Path) -> bytes:
    files = sorted([*folder.glob("*.cu"), *folder.glob("*.cuh")])
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in files)).digest()


def _keep(path: Path, code: bytes) -> None:
    """Whole or not at all; a cache that cannot be written is none."""
    partial = path.with_name(f".{path.name}.{os.urandom(8).hex()}")  # threads and containers share the folder
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_bytes(code)
        partial.replace(path)


def _compile(source: Path, options: list[str]) -> bytes:
    nvrtc, program = library(), ctypes.c_void_p()
    _check(nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.read_bytes(), source.name.encode(), 0, None, None))
    try:
        given = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        if nvrtc.nvrtcCompileProgram(program, len(options), given):
            log = _read(program, "nvrtcGetProgramLogSize", "nvrtcGetProgramLog").decode(errors="replace")
            raise Unavailable(f"{source.name} could not be compiled by NVRTC {version()}: {log.strip()[:600]}")
        return _read(program, "nvrtcGetCUBINSize", "nvrtcGetCUBIN")
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def _read(program: ctypes.c_void_p, size_of: str, read: str) -> bytes:
    size = ctypes.c_size_t()
    _check(getattr(library(), size_of)(program, ctypes.byref(size)))
    text = ctypes.create_string_buffer(size.value)
    _check(getattr(library(), read)(program, text))
    return text.raw


def _check(result: int) -> None:
    if result:
        raise Unavailable(f"NVRTC {version()} gave error {result}")
