"""One call and its results as files: a folder of raw little-endian tensors and a meta.json.

    ROOT/OP/CASE/meta.json, in.NAME.bin, out.NAME.bin

Whoever writes a folder writes all of it or nothing. Whoever reads one trusts none of it: names come from the op's
record, sizes from format and shape, and every byte is hashed before it is used.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import stat
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from samebits import __version__
from samebits.core.errors import BadInput
from samebits.core.format import BlockFormat, HostTensor, Packed, format_of
from samebits.core.numerics import NUMERICS_VERSION
from samebits.ops import Bound, Op, bind
from samebits.verify.harness import raw_bytes
from samebits.verify.meta import ARTIFACT_VERSION, MAX_META_BYTES, NAME, Entry, parse_meta, refuse

META = "meta.json"


@dataclass(frozen=True)
class Artifact:
    """A call, its results and where they came from. Inputs are as they were before the call."""

    op: Op
    case: str
    attrs: dict[str, Any]
    inputs: dict[str, HostTensor]
    outputs: dict[str, HostTensor]
    provenance: dict[str, Any]
    numerics_version: int = NUMERICS_VERSION
    package_version: str = __version__


def as_little(x: np.ndarray) -> np.ndarray:
    """The same values in the byte order of the files; it is its own inverse."""
    return x if sys.byteorder == "little" else x.byteswap()


def _stored(x: HostTensor) -> bytes:
    return raw_bytes(x if isinstance(x, Packed) else as_little(x)).tobytes()


def _entry(x: HostTensor, data: bytes) -> dict[str, Any]:
    entry = {"format": format_of(x).name, "shape": list(x.shape), "sha256": hashlib.sha256(data).hexdigest()}
    return {**entry, "scale": float(x.scale)} if isinstance(x, Packed) else entry


def write_artifact(root: Path, artifact: Artifact, force: bool = False) -> int:
    """Writes ROOT/OP/CASE in one step and returns its bytes; BadInput where it exists, unless `force`."""
    target = root / artifact.op.name / artifact.case
    if target.exists() and not force:
        raise BadInput("golden", str(target), "a folder that exists", "another DIR, or --force to replace it")
    files = {f"in.{name}.bin": _stored(x) for name, x in artifact.inputs.items()}
    files |= {f"out.{name}.bin": _stored(x) for name, x in artifact.outputs.items()}
    meta = {
        "version": ARTIFACT_VERSION,
        "op": artifact.op.name,
        "case": artifact.case,
        "config": artifact.attrs,
        "inputs": {n: _entry(x, files[f"in.{n}.bin"]) for n, x in artifact.inputs.items()},
        "outputs": {n: _entry(x, files[f"out.{n}.bin"]) for n, x in artifact.outputs.items()},
        "numerics_version": artifact.numerics_version,
        "samebits": artifact.package_version,
        "provenance": artifact.provenance,
    }
    files[META] = (json.dumps(meta, indent=1) + "\n").encode()
    try:
        _write_folder(target, files)
    except OSError as error:
        raise BadInput("golden", str(target), error.strerror or error, "a place that can be written") from None
    return sum(map(len, files.values()))


def _write_folder(target: Path, files: dict[str, bytes]) -> None:
    """A hidden folder beside the target becomes the target; a failure leaves what was there."""
    fresh, old = (target.with_name(f".{target.name}.{kind}.{os.getpid()}") for kind in ("new", "old"))
    try:
        fresh.mkdir(parents=True)
        for name, data in files.items():
            (fresh / name).write_bytes(data)
        if target.exists():
            target.rename(old)
        fresh.rename(target)
    except OSError:
        if old.exists() and not target.exists():
            old.rename(target)
        raise
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def find_artifacts(root: Path) -> dict[tuple[str, str], Path]:
    """(op, case) -> folder for every folder of a tree; a folder with a meta.json is the one artifact, ("", "").

    BadInput when there is none. Hidden folders and plain files beside the ops' folders are left alone.
    """
    if (root / META).exists():
        return {("", ""): root}
    found = {(op.name, case.name): case for op in _folders(root) for case in _folders(op)}
    if not found:
        raise BadInput("artifacts", str(root), "a folder without any", f"DIR/OP/CASE/{META}")
    return found


def _folders(parent: Path) -> list[Path]:
    try:
        return sorted(p for p in parent.iterdir() if not p.name.startswith(".") and p.is_dir())
    except OSError as error:
        raise BadInput("artifacts", str(parent), error.strerror or error, "a folder that can be read") from None


def read_artifact(folder: Path, key: tuple[str, str] = ("", "")) -> Artifact:
    """The artifact, checked completely; BadInput names the folder and the first thing that is wrong.

    `key` is the op and case that the folder stands for in a tree.
    """
    for part in key:
        if part and not NAME.fullmatch(part):
            raise BadInput(ascii(str(folder)), "folder", ascii(part), "a name of letters, digits, '.', '_' and '-'")
    where = "/".join(key) if key[0] else str(folder)
    meta = parse_meta(where, _read_bytes(where, folder / META, None).tobytes())
    if key[0] and key != (meta.op.name, meta.case):
        refuse(where, META, f"{meta.op.name}/{meta.case}", "the op and case of its folder")
    _refuse_strays(where, folder, {*(f"in.{n}.bin" for n in meta.inputs), *(f"out.{n}.bin" for n in meta.outputs)})
    inputs = {n: _read_tensor(where, folder / f"in.{n}.bin", entry) for n, entry in meta.inputs.items()}
    bound = _bound(where, meta.op, {**inputs, **meta.config})
    results = meta.op.active_results(bound.tensors, bound.attrs)
    specs = {r.name: str(spec) for r, spec in zip(results, bound.result_specs(), strict=True)}
    stated = {n: str(entry.spec) for n, entry in meta.outputs.items()}
    if stated != specs:
        refuse(where, "outputs", _listed(stated), f"what the op gives: {_listed(specs)}")
    outputs = {n: _read_tensor(where, folder / f"out.{n}.bin", meta.outputs[n]) for n in specs}
    return Artifact(
        meta.op, meta.case, bound.attrs, inputs, outputs, meta.provenance, meta.numerics_version, meta.package_version
    )


def _listed(specs: dict[str, str]) -> str:
    return ", ".join(f"{name} {spec}" for name, spec in specs.items()) or "nothing"


def _refuse_strays(where: str, folder: Path, expected: set[str]) -> None:
    """A tensor file that meta.json does not name would go unnoticed, so it is refused."""
    for path in sorted(folder.glob("*.bin")):
        if path.name not in expected:
            refuse(where, "files", ascii(path.name), f"only files that {META} names")


def _bound(where: str, op: Op, arguments: dict[str, Any]) -> Bound:
    try:
        with np.errstate(all="ignore"):
            return bind(op, **arguments)
    except BadInput as error:
        raise BadInput(where, "inputs", str(error), "a call that the op accepts") from None
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:  # contents no check had foreseen
        raise BadInput(where, "inputs", f"{type(error).__name__}: {error}", "a call that the op accepts") from None


def _read_tensor(where: str, path: Path, entry: Entry) -> HostTensor:
    raw = _read_bytes(where, path, entry)
    if hashlib.sha256(raw).hexdigest() != entry.sha256:
        refuse(where, path.name, "other bytes than were written", f"SHA-256 {entry.sha256[:16]}...")
    shape, fmt = entry.shape, entry.format
    if isinstance(fmt, BlockFormat):
        return Packed(fmt, raw.reshape(*shape[:-1], fmt.row_bytes(shape[-1])), entry.scale)
    if fmt.dtype == np.bool_ and raw.max(initial=0) > 1:
        refuse(where, path.name, f"a bool of {raw.max()}", "bytes 0 and 1")
    return as_little(raw.view(fmt.dtype)).reshape(shape)


def _read_bytes(where: str, path: Path, entry: Entry | None) -> np.ndarray:
    """A plain file's bytes, uint8 and writable; its size is checked before memory is taken. No links, no pipes."""
    flags = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)  # Windows has neither
    try:
        with open(path, "rb", opener=lambda name, mode: os.open(name, mode | flags)) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                refuse(where, path.name, "something else", "a plain file")
            if entry is None and status.st_size > MAX_META_BYTES:
                refuse(where, path.name, f"{status.st_size} bytes", f"at most {MAX_META_BYTES}")
            if entry is not None and status.st_size != entry.num_bytes:
                refuse(where, path.name, f"{status.st_size} bytes", f"{entry.num_bytes} for {entry.spec}")
            raw = np.empty(status.st_size, np.uint8)
            if file.readinto(memoryview(raw)) != math.prod(raw.shape):
                refuse(where, path.name, "fewer bytes than its size", "a file that nobody is writing")
            return raw
    except OSError as error:
        raise BadInput(where, path.name, error.strerror or error, "a file that can be read") from None
