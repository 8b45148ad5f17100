"""CONTRIBUTING's table of files to touch, counted where it can be: a file that names no op needs no change for one."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest
from test_imports import PACKAGE, imported_modules

from samebits.backends.discovery import IN_TREE
from samebits.ops import OPS

ROOT = Path(__file__).parents[1]
# Shorter names, and single words, mean other things too.
NAMES = [n for n in OPS.names() if "_" in n and len(n) > 6 and OPS[n].reference.__module__.startswith("samebits.ops.")]
# Rooms whose work is ops by name: they define them, compute them, build graphs of them, rewrite those, time them.
ON_OPS = ("ops", "kernels", "models", "passes", "engine", "bench")
# And files: goldens of every op, what may differ in two of them, graphs to verify, the op that times a machine.
STATED = {f"verify/{name}.py" for name in ("golden", "compare", "random_graphs", "stated_graphs", "calibrate")}
BOUNDS = "verify/bounds/"  # errors that sums may have, by op


@cache
def names_in(path: Path) -> frozenset[str]:
    """Every string, attribute and function of a Python file; every word of a C++ one."""
    if path.suffix != ".py":
        return frozenset(word.removeprefix("run_") for word in re.findall(r"\w+", path.read_text()))
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.FunctionDef):
            found.add(node.name)
    return frozenset(found)


def files_naming(op: str) -> set[str]:
    """Files of the package, by their path in it."""
    files = [path for path in PACKAGE.rglob("*") if path.suffix in (".py", ".h", ".cpp")]
    return {path.relative_to(PACKAGE).as_posix() for path in files if op in names_in(path)}


@pytest.mark.parametrize("op", NAMES)
def test_only_rooms_on_ops_name_one(op: str) -> None:
    others = {f for f in files_naming(op) if f.partition("/")[0] not in ON_OPS}
    assert {f for f in others if not f.startswith(BOUNDS)} <= STATED


@pytest.mark.parametrize("op", NAMES)
def test_native_kernels_are_named_where_they_are_written_and_listed(op: str) -> None:
    native = {f for f in files_naming(op) if f.startswith("kernels/cpp/")}
    assert all(f.startswith("kernels/cpp/ops/") for f in native)
    assert not native or "kernels/cpp/ops/all.h" in native


@pytest.mark.parametrize("op", ["layer_norm", "merge_state", "convert_kv_layout"])
def test_an_op_with_four_kernels_is_eight_files(op: str) -> None:
    """Its module, the list of modules, its golden cases, a native header, the list of those, Triton's two, WGSL's."""
    files = files_naming(op)
    triton = {f for f in files if f.startswith("kernels/triton/")}
    assert len(triton) in (1, 2)  # its file, and the table where that names ops rather than files
    wgsl = {f for f in files if f.startswith("kernels/wgsl/")}
    assert len(wgsl) <= 1  # merge_state has none
    bounds = {f for f in files if f.startswith(BOUNDS)}
    assert len(bounds) == (2 if OPS[op].freedom else 0)  # the family's module, and the table of ops
    folders = sorted(f.rpartition("/")[0] for f in files - triton - wgsl - bounds)
    assert folders == ["kernels/cpp/ops", "kernels/cpp/ops", "ops", "verify"]
    stated = "| an op with four kernels | eight files of `src`, and two of `src/samebits/verify/bounds` unless"
    assert stated in (ROOT / "CONTRIBUTING.md").read_text()


def backend_names(path: Path) -> set[str]:
    """The names that classes of a file state as backends."""
    classes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ClassDef)]
    stated = [
        statement.value.value
        for node in classes
        if any(ast.unparse(base).endswith("Backend") for base in node.bases)
        for statement in node.body
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Constant)
        if ast.unparse(statement.targets[0]) == "name"
    ]
    return set(stated)


def test_a_backend_is_its_own_files_and_a_line_of_discovery() -> None:
    backends = PACKAGE / "backends"
    assert set().union(*map(backend_names, backends.rglob("*.py"))) == set(IN_TREE)
    own = {target.partition(":")[0] for target in IN_TREE.values()} - {"samebits.backends.reference"}  # the fallback
    for path in set(PACKAGE.rglob("*.py")) - set(backends.rglob("*.py")):
        imported = imported_modules(path.read_text())
        assert not [name for name in imported if any(name.startswith(f"{module}.") for module in own)], path
