"""What the tests of golden artifacts share: the command line in this process, and ways to spoil a folder."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from samebits.backends.discovery import get
from samebits.backends.reference import ReferenceBackend, reference_kernels
from samebits.cli.main import main
from samebits.core.tiers import Tier
from samebits.kernels.record import KernelTable
from samebits.ops import OPS
from samebits.verify.golden import Verdict, check_folder, make_artifact, write_artifact
from samebits.verify.select import find_case

Mutation = Callable[[dict[str, Any]], object]


class Shell:
    """`shell("golden", "check", ...)` -> (exit status, everything printed)."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch, self._capsys = monkeypatch, capsys

    def __call__(self, *arguments: object) -> tuple[int, str]:
        self._monkeypatch.setenv("COLUMNS", "200")
        self._monkeypatch.setattr(sys, "argv", ["samebits", *map(str, arguments)])
        with pytest.raises(SystemExit) as exit_info:
            main()
        printed = self._capsys.readouterr()
        code = exit_info.value.code
        return code if isinstance(code, int) else 0, printed.out + printed.err


class OnlyMul(ReferenceBackend):
    """Has a kernel for one op."""

    def kernels(self) -> tuple[KernelTable, ...]:
        table = KernelTable("toy")
        table.add(reference_kernels()["mul"][0])
        return (table,)


def make(root: Path, op: str, case: str) -> Path:
    """The case's folder, made by the reference."""
    record = OPS[op]
    artifact = make_artifact(get("reference"), record, find_case(record, case), 0, Tier.PORTABLE)
    write_artifact(root, artifact)
    return root / op / case


def check(folder: Path, tier: Tier = Tier.PORTABLE) -> Verdict:
    return check_folder(get("reference"), folder, (folder.parent.name, folder.name), tier)


def edit_meta(folder: Path, mutation: Mutation) -> None:
    meta = json.loads((folder / "meta.json").read_text())
    mutation(meta)
    (folder / "meta.json").write_text(json.dumps(meta))


def flip(folder: Path, name: str, at: int = 0) -> None:
    """Flips a bit of a file; the hash in meta.json stays."""
    path = folder / name
    data = bytearray(path.read_bytes())
    data[at] ^= 0x40
    path.write_bytes(data)


def rewrite(folder: Path, name: str, data: np.ndarray) -> None:
    """Other contents with a hash that fits: what another backend might have computed."""
    raw = data.tobytes()
    (folder / name).write_bytes(raw)
    side, tensor = ("inputs" if name.startswith("in.") else "outputs"), name.split(".")[1]

    def mutation(meta: dict[str, Any]) -> None:
        meta[side][tensor]["sha256"] = hashlib.sha256(raw).hexdigest()

    edit_meta(folder, mutation)
