"""Python on the pages runs as it is pasted: the blocks of a page one after another, in one namespace."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
from pages import ROOT, blocks

from samebits.backends.interface import Backend
from samebits.core.errors import SamebitsError
from samebits.kernels.wgsl.lib import compose
from samebits.kernels.wgsl.lib.registry import WGSL
from samebits.loaders.cache import resolve
from samebits.loaders.catalog import DEFAULT_MODEL
from samebits.ops import OPS
from samebits.verify.checks import verify_case
from samebits.verify.model import Task

# page -> what stdout has, whatever a model with random weights answers
RUN_HERE = {
    "README.md": "",
    "docs/engine.md": "",
    "docs/receipts.md": "True None same bits: ",
    "docs/run-a-model.md": "",
    "docs/serve.md": "",
    "docs/train.md": "",
    "docs/tools.md": 'get_weather {"city":',
}
RUN_BY = {  # pages whose blocks are files rather than calls -> the test that runs them
    "docs/webgpu.md": "test_the_kernel_of_the_page_on_webgpu_has_the_bits_of_the_reference",
    "docs/write-a-backend.md": "tests/examples/test_guide.py",
    "tests/fuzz/README.md": "test_the_fuzz_target_of_the_page_runs",
}
SERVER = "http://127.0.0.1:8000"


def python_of(page: str) -> str:
    """The blocks of a page behind each other, each at its own line, for tracebacks."""
    source = ""
    for block in blocks("python", pages=(page,)):
        source += "\n" * (block.line - 1 - source.count("\n")) + block.text
    return source


def test_every_page_with_python_is_run() -> None:
    assert {block.page for block in blocks("python")} == set(RUN_HERE) | set(RUN_BY)


@pytest.mark.parametrize("page", RUN_HERE)
def test_the_python_of_a_page_runs(
    page: str, model_cache: Path, server_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a tiny model in the place of the default one, and the address of a server that is here."""
    monkeypatch.setenv("SAMEBITS_CACHE", str(model_cache))
    source = python_of(page).replace(SERVER, server_url)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # clients that a page does not close
        exec(compile(source, page, "exec"), {"__name__": "pasted"})
        gc.collect()
    assert RUN_HERE[page] in capsys.readouterr().out


def test_the_readmes_python_runs_with_the_default_model() -> None:
    try:
        resolve(DEFAULT_MODEL)
    except SamebitsError:
        pytest.skip("needs the default model: samebits pull")
    call = [sys.executable, "-W", "error", "-"]
    done = subprocess.run(call, input=python_of("README.md"), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "Paris" in done.stdout


@pytest.fixture
def webgpu() -> Backend:
    from samebits.backends.discovery import get
    from samebits.core.errors import Unavailable

    try:
        backend = get("webgpu").backend
    except Unavailable as error:
        pytest.skip(f"{error}; Debian's mesa-vulkan-drivers is a software device")
    assert backend is not None
    return backend


def test_the_kernel_of_the_page_on_webgpu_has_the_bits_of_the_reference(
    webgpu: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page's two files in the place of the tree's own kernel of that op."""
    (shader,) = (block.text for block in blocks("wgsl", pages=("docs/webgpu.md",)) if "fn main" in block.text)
    source_of = compose.source
    monkeypatch.setattr(compose, "source", lambda name: shader if name == "rows/scale" else source_of(name))
    monkeypatch.setattr(WGSL, "_by_op", {})
    exec(compile(python_of("docs/webgpu.md"), "docs/webgpu.md", "exec"), {"__name__": "pasted"})
    op, statuses = OPS["scale"], []
    for case in op.cases[:4]:
        task = Task("webgpu", op.name, case.id, ("portable",))
        (result,) = verify_case(webgpu, webgpu.probe(), op, case, task)
        assert result.status in ("pass", "unsupported"), result.reason
        statuses.append(result.status)
    assert "pass" in statuses


def test_other_shaders_of_the_page_are_the_trees() -> None:
    sources = "\n".join(path.read_text() for path in (ROOT / "src/samebits/kernels/wgsl").rglob("*.wgsl"))
    quoted = [block.text for block in blocks("wgsl") if "fn main" not in block.text]
    assert quoted
    assert [text for text in quoted if text not in sources] == []


def test_the_fuzz_target_of_the_page_runs(tmp_path: Path) -> None:
    script = tmp_path / "fuzz_NAME.py"
    script.write_text(python_of("tests/fuzz/README.md"))
    environment: dict[str, Any] = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "tests/fuzz"), *sys.path])}
    call = [sys.executable, str(script), "--seconds", "1"]
    done = subprocess.run(call, capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 findings" in done.stdout
