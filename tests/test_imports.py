"""The rooms' import directions: an arrow that is not in the table fails."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import samebits

PACKAGE = Path(samebits.__file__).parent
ANYTHING = None  # rooms that may import every room

MAY_IMPORT: dict[str, set[str] | None] = {
    "core": set(),
    "formats": set(),
    "graph": set(),
    "ops": {"formats", "graph"},
    "passes": {"graph", "ops"},
    "kernels": {"ops", "formats"},
    "backends": {"graph", "ops", "formats", "kernels", "passes"},
    "loaders": {"formats"},
    "models": {"graph", "ops", "loaders", "cache"},
    "convert": {"formats", "loaders", "models"},
    "receipts": {"loaders"},
    "grammar": {"engine", "loaders", "receipts"},
    "cache": set(),
    "scheduler": {"cache"},
    "engine": {
        "formats",
        "graph",
        "ops",
        "passes",
        "kernels",
        "backends",
        "loaders",
        "models",
        "cache",
        "scheduler",
        "receipts",
    },
    "api": {"engine", "scheduler", "backends", "ops", "loaders", "models", "graph", "receipts", "grammar"},
    "server": {"api", "engine", "scheduler", "loaders", "receipts", "grammar"},
    "scale": {"api", "engine", "loaders", "server"},
    "lm_eval": {"api", "engine", "loaders"},
    "verify": ANYTHING,
    "bench": ANYTHING,
    "debug": ANYTHING,
    "cli": ANYTHING,
}
DEVICE_APIS = {"torch", "triton", "cupy", "wgpu", "pyopencl", "jax"}
TOP_LEVEL = {"api", "core"}  # what samebits/__init__.py itself may reach
ENTRY = PACKAGE / "__main__.py"  # is the command line, by another name
WITHOUT_EXTRAS = ("backends.discovery", "backends.gpu", "kernels.triton", "cli.main")  # torch is an extra


def imported_modules(source: str) -> set[str]:
    """Absolute names of everything a source file imports, nested imports included."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def wrong_arrows(room: str, source: str) -> list[str]:
    """Imports of a file in `room` that the table does not allow."""
    allowed = TOP_LEVEL if room == "" else MAY_IMPORT[room]
    wrong = []
    for name in imported_modules(source):
        root, _, rest = name.partition(".")
        target = rest.partition(".")[0]
        if root == "samebits" and target in MAY_IMPORT and allowed is not ANYTHING:
            if target not in allowed | {room, "core"}:
                wrong.append(name)
        if root in DEVICE_APIS and room not in ("backends", "kernels"):
            wrong.append(name)
    return sorted(wrong)


FILES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_file_imports_only_what_its_room_may(path: Path) -> None:
    parts = path.relative_to(PACKAGE).parts
    room = parts[0] if len(parts) > 1 else "cli" if path == ENTRY else ""
    assert room == "" or room in MAY_IMPORT, f"{room} is a room that ARCHITECTURE.md and this table do not know"
    assert wrong_arrows(room, path.read_text()) == []


def test_the_walk_sees_a_wrong_arrow() -> None:
    assert wrong_arrows("core", "from samebits.ops import OPS") == ["samebits.ops.OPS"]
    assert wrong_arrows("formats", "def f():\n    import samebits.backends.null") == ["samebits.backends.null"]
    assert wrong_arrows("ops", "import torch") == ["torch"]
    assert wrong_arrows("engine", "def f():\n    from triton import language") == ["triton.language"]
    assert wrong_arrows("verify", "import torch.cuda") == ["torch.cuda"]
    assert wrong_arrows("kernels", "import torch\nimport triton.language as tl") == []
    assert wrong_arrows("backends", "from torch import cuda") == []
    assert wrong_arrows("ops", "from samebits.formats import Q4_0\nimport numpy") == []


@pytest.mark.parametrize("module", WITHOUT_EXTRAS)
def test_device_apis_are_imported_only_when_a_gpu_is_asked_for(module: str) -> None:
    """They may be absent, and take seconds where they are not."""
    code = f"import sys, samebits.{module}; print(sorted({DEVICE_APIS!r} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
