"""The fuzz driver finds what is planted, saves the input that did it, and finds nothing where nothing is."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SCRIPT = Path(__file__).with_name("planted_fuzz.py")
PLANTED = {
    "nothing": "",
    "abort": "ended with status -6",
    "memory": "MiB, more than 128",
    "time": "s of CPU, more than 0.5",
    "error": "KeyError: 'planted'",
    "lines": "not one printable line",
}


def fuzz(planted: str, folder: Path) -> subprocess.CompletedProcess[str]:
    folder.mkdir()
    command = [sys.executable, str(SCRIPT), "--seconds", "1"]
    environment = os.environ | {"PLANTED": planted}
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment, timeout=120)


def test_what_is_planted_is_found(tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as pool:
        runs = dict(zip(PLANTED, pool.map(lambda name: fuzz(name, tmp_path / name), PLANTED), strict=True))
    for name, reason in PLANTED.items():
        done, num_findings = runs[name], int(name != "nothing")
        assert done.returncode == num_findings, (name, done.stderr)
        assert done.stdout.splitlines()[-1].startswith("planted_fuzz: "), name
        assert done.stdout.endswith(f" inputs, {num_findings} findings\n"), (name, done.stdout)
        assert reason in done.stdout + done.stderr, (name, done.stderr)
        saved = list((tmp_path / name).glob("fuzz-findings/*"))
        assert [path.read_bytes() for path in saved] == [b"!bad"] * num_findings, name
