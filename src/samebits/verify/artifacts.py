"""One call and its results as files, and how they are read: nothing in them is trusted.

    DIR/OP/CASE/meta.json, in.NAME.bin, out.NAME.bin: raw little-endian tensors, packed ones as their bytes

Names come from the op's record, sizes from format and shape, and every byte is hashed before it is used.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import stat
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from samebits import __version__
from samebits.core.errors import BadInput
from samebits.core.format import FORMATS, BlockFormat, Format, HostTensor, Packed
from samebits.core.numerics import NUMERICS_VERSION
from samebits.core.shapes import TensorSpec
from samebits.ops import OPS, Bound, Op, bind
from samebits.ops.evaluate import LARGEST_FLOAT32

ARTIFACT_VERSION = 1
META = "meta.json"
SIDES = {"inputs": "in", "outputs": "out"}  # key in meta.json -> how its files begin
META_KEYS = {"version", "op", "case", "config", *SIDES, "numerics_version", "samebits", "provenance"}
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
MAX_META_BYTES = 1 << 16
MAX_TENSOR_BYTES = 1 << 30
MAX_EMPTY_BYTES = 1 << 20  # what a tensor without elements may claim for its other axes: backends guard by rows
MAX_RANK = 8
LARGEST = 2**31 - 1  # of a dimension and of an integer attr


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


@dataclass(frozen=True)
class Entry:
    """What meta.json says of one tensor, found possible."""

    format: Format
    shape: tuple[int, ...]
    sha256: str
    scale: np.float32

    @property
    def spec(self) -> TensorSpec:
        return TensorSpec(self.shape, self.format.name)

    @property
    def num_bytes(self) -> int:
        return math.prod(self.shape) // self.format.block_len * self.format.block_bytes


def as_little(x: np.ndarray) -> np.ndarray:
    """The same values in the byte order of the files; it is its own inverse."""
    return x if sys.byteorder == "little" else x.byteswap()


def refuse(where: str, argument: str, given: object, needed: str) -> NoReturn:
    """BadInput with strangers' values shown in ASCII and at most 80 characters."""
    text = given if isinstance(given, str) and given.isprintable() and given.isascii() else ascii(given)
    raise BadInput(where, argument, text if len(text) <= 80 else text[:77] + "...", needed)


def find_artifacts(root: Path) -> dict[tuple[str, str], Path]:
    """(op, case) -> folder for a tree; ("", "") -> a folder that is an artifact itself. BadInput for none."""
    if (root / META).exists():
        return {("", ""): root}
    found = {(op.name, case.name): case for op in _folders(root) for case in _folders(op)}
    if not found:
        raise BadInput("artifacts", str(root), "a folder without artifacts", f"OP/CASE/{META} in it")
    return found


def _folders(parent: Path) -> list[Path]:
    try:
        return sorted(p for p in parent.iterdir() if not p.name.startswith(".") and p.is_dir())
    except OSError as error:
        raise BadInput("artifacts", str(parent), error.strerror, "a folder that can be read") from None


def read_artifact(folder: Path, key: tuple[str, str] = ("", "")) -> Artifact:
    """The artifact, checked completely; BadInput names it and the first thing that is wrong.

    `key` is the op and case that the folder stands for in a tree.
    """
    where = ascii("/".join(key))[1:-1] if key[0] else str(folder)
    meta = _parse(where, _read_bytes(where, folder / META, None).tobytes())
    op = _op_of(where, meta)
    if key[0] and key != (op.name, meta["case"]):
        refuse(where, META, f"{op.name}/{meta['case']}", "the op and case of its folder")
    entries = {s: {n: _entry(f"{where}: {s}", n, stated) for n, stated in meta[s].items()} for s in SIDES}
    _refuse_strays(where, folder, entries)
    inputs = {n: _read_tensor(where, folder / f"in.{n}.bin", e) for n, e in entries["inputs"].items()}
    bound = _bound(where, op, inputs, meta["config"])
    results = op.active_results(bound.tensors, bound.attrs)
    given = {r.name: str(spec) for r, spec in zip(results, bound.result_specs(), strict=True)}
    stated = {n: str(e.spec) for n, e in entries["outputs"].items()}
    if stated != given:
        listed = (", ".join(f"{n} {spec}" for n, spec in specs.items()) or "nothing" for specs in (stated, given))
        refuse(where, "outputs", next(listed), f"what the op gives: {next(listed)}")
    outputs = {n: _read_tensor(where, folder / f"out.{n}.bin", entries["outputs"][n]) for n in given}
    rest = (meta[name] for name in ("provenance", "numerics_version", "samebits"))
    return Artifact(op, meta["case"], bound.attrs, inputs, outputs, *rest)


def _parse(where: str, data: bytes) -> dict[str, Any]:
    """meta.json as a dict with exactly the keys of this version, each of its type."""
    try:
        meta = json.loads(data, object_pairs_hook=_unique, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        refuse(where, META, str(error), "JSON")
    if not isinstance(meta, dict):
        refuse(where, META, meta, "an object")
    version = meta.get("version")
    if type(version) is not int or version != ARTIFACT_VERSION:
        refuse(where, "version", version, f"{ARTIFACT_VERSION}, the artifact version of this package")
    if meta.keys() != META_KEYS:
        wrong, known = min(META_KEYS ^ meta.keys()), ", ".join(sorted(META_KEYS))
        refuse(where, META, f"{'no' if wrong in META_KEYS else 'an unknown'} key {wrong!a}", known)
    kinds = {"op": str, "case": str, "samebits": str, "version": int, "numerics_version": int}
    for name in sorted(META_KEYS):
        if type(meta[name]) is not (kind := kinds.get(name, dict)):
            refuse(where, name, meta[name], kind.__name__)
    if not NAME.fullmatch(meta["case"]):
        refuse(where, "case", meta["case"], "a name of letters, digits, '.', '_' and '-'")
    return meta


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) != len(pairs):
        raise ValueError("a key twice in one object")
    return dict(pairs)


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"the constant {text}")


def _op_of(where: str, meta: dict[str, Any]) -> Op:
    if meta["op"] not in OPS.names():
        refuse(where, "op", meta["op"], "a known op, see `samebits support`")
    op = OPS[meta["op"]]
    config, attrs = meta["config"], {a.name for a in op.attrs}
    if config.keys() != attrs:
        refuse(where, "config", ", ".join(config) or "nothing", ", ".join(sorted(attrs)) or "nothing")
    for name, value in config.items():
        if type(value) is int and abs(value) > LARGEST:
            refuse(where, f"config {name}", value, f"at most {LARGEST}")
    for side, known in (("inputs", [t.name for t in op.inputs]), ("outputs", [r.name for r in op.results])):
        unknown = meta[side].keys() - set(known)
        if unknown:
            refuse(where, side, min(unknown), f"some of {', '.join(known)}")
    return op


def _entry(where: str, name: str, stated: Any) -> Entry:
    """What meta.json states of a tensor. Every field is checked; nothing is allocated."""
    if not isinstance(stated, dict) or type(stated.get("format")) is not str or stated["format"] not in FORMATS:
        refuse(where, name, stated, f"an object whose format is one of {', '.join(FORMATS.names())}")
    fmt = FORMATS[stated["format"]]
    keys = {"format", "shape", "sha256"} | ({"scale"} if fmt.is_block else set())
    if stated.keys() != keys:
        refuse(where, name, ", ".join(stated), ", ".join(sorted(keys)))
    shape, digest, scale = stated["shape"], stated["sha256"], stated.get("scale", 1.0)
    is_shape = isinstance(shape, list) and fmt.is_block <= len(shape) <= MAX_RANK
    if not is_shape or not all(type(d) is int and 0 <= d <= LARGEST for d in shape):
        refuse(where, f"{name} shape", shape, f"a list of at most {MAX_RANK} sizes")
    if fmt.is_block and shape[-1] % fmt.block_len:
        refuse(where, f"{name} shape", shape, f"rows of whole {fmt.name} blocks of {fmt.block_len}")
    claimed = math.prod(max(d, 1) for d in shape) * fmt.block_bytes // fmt.block_len
    limit = MAX_TENSOR_BYTES if math.prod(shape) else MAX_EMPTY_BYTES
    if claimed > limit:
        refuse(where, f"{name} shape", shape, f"at most {limit} bytes")
    if not isinstance(digest, str) or not re.fullmatch("[0-9a-f]{64}", digest):
        refuse(where, f"{name} sha256", digest, "64 hexadecimal digits")
    if type(scale) is not float or abs(scale) > LARGEST_FLOAT32 or float(np.float32(scale)) != scale:
        refuse(where, f"{name} scale", scale, "a finite float32 number")
    return Entry(fmt, tuple(shape), digest, np.float32(scale))


def _refuse_strays(where: str, folder: Path, entries: dict[str, dict[str, Entry]]) -> None:
    """A tensor file that meta.json does not name would go unnoticed, so it is refused."""
    named = {f"{SIDES[side]}.{n}.bin" for side in entries for n in entries[side]}
    for path in sorted(folder.glob("*.bin")):
        if path.name not in named:
            refuse(where, "files", path.name, f"only files that {META} names")


def _bound(where: str, op: Op, inputs: dict[str, HostTensor], config: dict[str, Any]) -> Bound:
    try:
        with np.errstate(all="ignore"):  # contents may hold any bits
            return bind(op, **inputs, **config)
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:  # BadInput is a ValueError
        text = str(error) if isinstance(error, BadInput) else f"{type(error).__name__}: {error}"
        raise BadInput(where, "call", text, "one that the op accepts") from None


def _read_tensor(where: str, path: Path, entry: Entry) -> HostTensor:
    raw = _read_bytes(where, path, entry)
    if hashlib.sha256(raw.data).hexdigest() != entry.sha256:
        refuse(where, path.name, "other bytes than were written", f"SHA-256 {entry.sha256[:16]}...")
    shape, fmt = entry.shape, entry.format
    if isinstance(fmt, BlockFormat):
        return Packed(fmt, raw.reshape(*shape[:-1], fmt.row_bytes(shape[-1])), entry.scale)
    if fmt.name == "bool" and raw.max(initial=0) > 1:
        refuse(where, path.name, f"a bool of {raw.max()}", "bytes 0 and 1")
    return as_little(raw.view(fmt.dtype)).reshape(shape)  # type: ignore[arg-type]


def _read_bytes(where: str, path: Path, entry: Entry | None) -> np.ndarray:
    """A plain file's bytes, uint8 and writable; the size is checked before memory is taken. No links, no pipes."""
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
            if file.readinto(raw.data) != status.st_size:
                refuse(where, path.name, "fewer bytes than its size", "a file that nobody is writing")
            return raw
    except OSError as error:
        raise BadInput(where, path.name, error.strerror, "a file that can be read") from None
