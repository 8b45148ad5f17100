"""Python on the pages has no type errors: mypy reads the blocks of each page as one file, as a user's program."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from pages import ROOT, Block, blocks

# A wrong use of each public name; mypy must name it, or the snippets' types would be Any and prove nothing.
WRONG = {
    'from samebits import LLM\nLLM("m", bakend="cpu")\n': 'Unexpected keyword argument "bakend"',
    "import samebits\nsamebits.SamplingParams(max_tokens='7')\n": 'has incompatible type "str"',
    'import samebits\nsamebits.LLM("m").generate("x")[0].txt\n': 'has no attribute "txt"',
    "import samebits\nsamebits.functionel\n": 'has no attribute "functionel"',
    "from samebits import functional\nfunctional.rope_table('7')\n": 'has incompatible type "str"',
}


def programs() -> dict[str, str]:
    """Module name -> source. A block that begins with a file's name is that file; ", at the end" adds to it."""
    found: dict[str, str] = {}
    for block in blocks("python"):
        named = re.match(r"# ([\w/]+)\.py(, at the end)?\n", block.text)
        module = named[1] if named else block.page.removesuffix(".md")
        module = re.sub(r"\W", "_", module)
        begins_anew = named is not None and named[2] is None
        found[module] = ("" if begins_anew else found.get(module, "")) + block.text
    return found


def mypy(folder: Path, sources: dict[str, str]) -> str:
    """Return what mypy prints about these modules, with the project's options for the package `snippets`."""
    package = folder / "snippets"
    package.mkdir()
    for name, source in {"__init__": "", **sources}.items():
        (package / f"{name}.py").write_text(source)
    paths = [str(ROOT / "src"), str(ROOT / "examples/toy-accelerator/src"), str(ROOT / "tests/fuzz"), str(folder)]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-error-summary", str(package)],
        cwd=ROOT,
        env={**os.environ, "MYPYPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout


def test_blocks_and_wrong_uses(tmp_path: Path) -> None:
    """One run of mypy for both, since most of it is reading the package."""
    wrong = {f"wrong{i}": source for i, source in enumerate(WRONG)}
    lines = mypy(tmp_path, programs() | wrong).splitlines()
    about_wrong = [line for line in lines if "/wrong" in line]
    assert [line for line in lines if line not in about_wrong] == []
    for name, expected in zip(wrong, WRONG.values(), strict=True):
        said = [line for line in about_wrong if f"/{name}.py" in line]
        assert any(expected in line for line in said), said


def test_files_of_blocks_are_put_together() -> None:
    found = programs()
    assert {"README", "docs_engine", "my_backend", "broken"} <= set(found)
    assert "class MyExecutable" in found["my_backend"]
    assert "def whole_vectors" in found["my_backend"]
    assert "DRIVER" not in found["my_backend"]  # an earlier state of the file


@pytest.mark.parametrize("block", blocks("yaml"), ids=lambda block: f"{block.page}:{block.line}")
def test_yaml_is_read(block: Block) -> None:
    assert isinstance(yaml.safe_load(block.text), dict)


def test_the_entry_point_of_the_guide_is_the_examples() -> None:
    (block,) = blocks("toml")
    assert block.text in (ROOT / "examples/toy-accelerator/pyproject.toml").read_text()
