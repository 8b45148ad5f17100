"""Recipes for conda, Homebrew and Nix state what pyproject.toml states. None of them is built here."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
PACKAGING = ROOT / "packaging"
CONDA, BREW, NIX = (PACKAGING / name for name in ("conda/recipe.yaml", "homebrew/samebits.rb", "nix/flake.nix"))
FILE = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = FILE["project"]
VERSION = FILE["tool"]["setuptools_scm"]["fallback_version"]


def stated(lines: list[str]) -> set[str]:
    """Return requirements as "name >=version"."""
    parsed = [Requirement(line) for line in lines if ";" not in line]
    return {f"{r.name} {r.specifier}".strip() for r in parsed}


def test_conda_requires_what_the_project_does() -> None:
    recipe = yaml.safe_load(CONDA.read_text())
    assert recipe["context"]["version"] == VERSION
    needed = recipe["requirements"]
    python = f"python {PROJECT['requires-python'].partition(',')[0]}"
    assert set(needed["run"]) == stated(PROJECT["dependencies"]) | {python}
    assert stated(FILE["build-system"]["requires"]) <= set(needed["host"])
    assert recipe["about"]["license"] == PROJECT["license"]
    assert recipe["about"]["license_file"] == PROJECT["license-files"]
    assert recipe["build"]["script"]["env"]["SAMEBITS_REQUIRE_NATIVE"] == "1"


def test_nix_requires_what_the_project_and_its_server_do() -> None:
    text = NIX.read_text()
    listed = re.search(r"\bdependencies = with python; \[(.*?)\]", text, re.S)
    assert listed is not None
    wanted = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["server"]]
    assert set(listed[1].split()) == {Requirement(line).name.replace("_", "-") for line in wanted}
    assert re.findall(r'version = "(.*?)"', text) == [VERSION]
    assert 'SAMEBITS_REQUIRE_NATIVE = "1"' in text


@pytest.mark.parametrize("path", [CONDA, BREW, NIX], ids=lambda p: p.name)
def test_a_recipe_says_how_far_it_was_checked(path: Path) -> None:
    assert re.search(r"^# .*never (built|installed)", path.read_text(), re.M)


@pytest.mark.parametrize(
    ("command", "path"), [(("ruby", "-c"), BREW), (("nix-instantiate", "--parse"), NIX)], ids=["ruby", "nix"]
)
def test_its_language_reads_it(command: tuple[str, ...], path: Path) -> None:
    if shutil.which(command[0]) is None:
        pytest.skip(f"no {command[0]}")
    done = subprocess.run([*command, str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
