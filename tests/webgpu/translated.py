"""Shaders in the languages of other devices: naga, wgpu's own translator, run by node."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

NAGA = Path(__file__).parent / "naga"


@dataclass(frozen=True)
class Translated:
    """One shader. `spirv` holds names."""

    msl: str
    hlsl: str
    spirv: bytes


def translate(texts: Sequence[str]) -> list[Translated]:
    """All texts, in one process; the test is skipped where naga or node is missing."""
    node = shutil.which("node")
    if node is None or not (NAGA / "node_modules").is_dir():
        pytest.skip("naga is not here: it needs node, and `npm ci --prefix tests/webgpu/naga`")
    command = [node, "translate.mjs"]
    asked = json.dumps(list(texts))
    done = subprocess.run(command, cwd=NAGA, input=asked, capture_output=True, text=True, timeout=300, check=True)
    answers = json.loads(done.stdout)
    errors = [answer["error"] for answer in answers if "error" in answer]
    assert not errors, errors[0]
    return [Translated(a["msl"], a["hlsl"], base64.b64decode(a["spirv"])) for a in answers]
