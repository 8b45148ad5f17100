"""What installs and runs the package names things that exist; a wheel with too much or too little in it is found."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import tarfile
import tomllib
import zipfile
from pathlib import Path
from types import ModuleType

import pytest
import yaml
from click.testing import CliRunner

import samebits
from samebits.cli.main import app
from samebits.core.source_version import source_version

ROOT = Path(__file__).parents[1]
PACKAGING = ROOT / "packaging"
CACHE_VARIABLE = "SAMEBITS_CACHE"  # read where models are kept
BUILD_VARIABLE = "SAMEBITS_REQUIRE_NATIVE"  # read at install time
WORKFLOW = ROOT / ".github" / "workflows" / "ci.yml"


def script(name: str) -> ModuleType:
    """A script of packaging/ as a module; the folder is no package, and another one has its name."""
    spec = importlib.util.spec_from_file_location(f"packaging_{name}", PACKAGING / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def files_of_the_package() -> list[str]:
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout: which files are the package's is not known")
    tracked = subprocess.run(["git", "ls-files", "src"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [n.removeprefix("src/") for n in tracked.stdout.split() if not n.endswith((".cpp", ".h"))]


def wheel_with(folder: Path, names: list[str]) -> Path:
    path = folder / "samebits-0.1.0-cp312-abi3-linux_aarch64.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name in [*names, "samebits-0.1.0.dist-info/METADATA"]:
            archive.writestr(name, "")
    return path


def test_a_wheel_holds_the_package_and_nothing_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check, whole = script("check_wheel"), files_of_the_package()
    check.check_contents(wheel_with(tmp_path, whole))
    assert f"{len(whole)} files" in capsys.readouterr().out
    for odd in ("tests/test_docs.py", "samebits/kernels/cpp/module.cpp", "benchmarks/bars.py"):
        with pytest.raises(check.BadWheel, match=f"holds {odd}"):
            check.check_contents(wheel_with(tmp_path, [*whole, odd]))
    with pytest.raises(check.BadWheel, match=f"lacks {whole[-1]}"):
        check.check_contents(wheel_with(tmp_path, whole[:-1]))


def test_what_a_source_archive_leaves_out_is_named_from_its_root() -> None:
    """A bare name leaves out every folder of that name, rooms of the package among them; wheels follow it too."""
    left_out = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["scikit-build"]["sdist"]["exclude"]
    assert [pattern for pattern in left_out if not pattern.startswith(("/", "."))] == []
    assert not {"/tests", "/golden", "/tools", "/benchmarks"} & set(left_out)  # tests need all of them


def test_a_tree_that_is_not_installed_has_the_fallback_version(tmp_path: Path) -> None:
    stated = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools_scm"]["fallback_version"]
    assert source_version() == stated
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    assert source_version(str(tmp_path / "pyproject.toml")) == "0+unknown"
    assert source_version(str(tmp_path / "absent.toml")) == "0+unknown"


@pytest.mark.skipif(os.name == "nt", reason="the engine is a shell script")
@pytest.mark.parametrize(
    ("answers", "engine", "said"),
    [
        ("exit 0", "docker", ""),
        ("exit 1", None, "docker is here and its daemon does not answer"),
        ("exec sleep 60", None, "docker did not answer in 0.2 s"),
    ],
)
def test_an_engine_without_a_daemon_is_left_alone(
    answers: str,
    engine: str | None,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.syspath_prepend(str(PACKAGING))
    build = script("build_wheels")
    (tmp_path / "docker").write_text(f"#!/bin/sh\n{answers}\n")
    (tmp_path / "docker").chmod(0o755)
    (tmp_path / "sleep").symlink_to(str(shutil.which("sleep")))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(build, "ENGINE_SECONDS", 0.2)
    assert build.container_engine() == engine
    assert said in capsys.readouterr().out


def archive_with(folder: Path, names: list[str]) -> Path:
    path = folder / "samebits-0.1.0.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name in names:
            archive.addfile(tarfile.TarInfo(f"samebits-0.1.0/{name}"))
    return path


def test_a_source_archive_holds_tests_and_golden_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files_of_the_package()  # skips without git
    check = script("check_wheel")
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    whole = [name for name in tracked.splitlines() if not name.startswith(".")]
    check.check_sdist(archive_with(tmp_path, whole))
    assert "tests and golden files among them" in capsys.readouterr().out
    lacking = [name for name in whole if not name.startswith("golden/")]
    with pytest.raises(check.BadWheel, match="lacks golden/"):
        check.check_sdist(archive_with(tmp_path, lacking))


def test_an_extra_brings_the_extras_that_it_names() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    wanted = script("requirements").requirements_of("dev")
    assert set(extras["server"]) < set(wanted)
    assert not [line for line in wanted if line.startswith("samebits")]


@pytest.mark.skipif(not WORKFLOW.exists(), reason="a source archive has no recipe for GitHub")
def test_the_recipe_runs_targets_that_exist_and_pins_its_actions() -> None:
    jobs = yaml.safe_load(WORKFLOW.read_text())["jobs"].values()
    steps = [step for job in jobs for step in job["steps"]]
    asked = {target for step in steps for target in re.findall(r"^make ([\w-]+)", step.get("run", ""), re.M)}
    rules = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M))
    assert {"test", "wheels", "site"} <= asked <= rules
    actions = [step["uses"] for step in steps if "uses" in step]
    assert actions
    assert [action for action in actions if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", action)] == []


@pytest.mark.parametrize("file", ["Containerfile", "samebits.service"])
def test_settings_of_a_service_are_settings_of_ours(file: str) -> None:
    named = set(re.findall(r"SAMEBITS_[A-Z_]+", (PACKAGING / file).read_text()))
    shown = CliRunner().invoke(app, ["serve", "--help"], env={"COLUMNS": "200"}).output
    assert CACHE_VARIABLE in named
    assert [name for name in named - {CACHE_VARIABLE, BUILD_VARIABLE} if name not in shown] == []


def test_a_layer_sees_what_is_below_it_and_comes_first(tmp_path: Path) -> None:
    script("layer").make_layer(tmp_path / "layer")
    (inside,) = (tmp_path / "layer").rglob("site-packages")
    (inside / "click.py").write_text("__version__ = 'of the layer'")
    asks = "import click, numpy, samebits; print(click.__version__, samebits.__file__)"
    python = tmp_path / "layer" / ("Scripts" if os.name == "nt" else "bin") / "python"
    told = subprocess.run([python, "-c", asks], capture_output=True, text=True, check=True).stdout
    assert told.strip() == f"of the layer {samebits.__file__}"


def test_wheels_of_cibuildwheel_need_their_native_part() -> None:
    """Containers see no variable of this machine; without the native part the wheel would be pure Python."""
    rules = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["cibuildwheel"]
    environments = [rules["environment"], *(r["environment"] for r in rules.values() if "environment" in r)]
    assert [e for e in environments if e.get(BUILD_VARIABLE) != "1"] == []


@pytest.mark.filterwarnings("ignore:Configuration:DeprecationWarning")  # newer names need more than setuptools-scm 8.1
@pytest.mark.parametrize(
    ("tags", "version"), [(["v0.2.0"], "0.2.0"), (["v0.2.0", "nightly-2026"], "0.2.0"), (["next2"], "")]
)
def test_the_version_is_the_latest_tag_of_a_version(
    tags: list[str], version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = pytest.importorskip("scikit_build_core.metadata.setuptools_scm")
    pytest.importorskip("setuptools_scm")
    if shutil.which("git") is None:
        pytest.skip("no git")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    monkeypatch.chdir(tmp_path)
    settings = ("-c", "user.name=a", "-c", "user.email=a@b")
    subprocess.run(["git", "init", "-q"], check=True)
    for tag in tags:
        subprocess.run(["git", *settings, "commit", "-q", "--allow-empty", "-m", tag], check=True)
        subprocess.run(["git", "tag", tag], check=True)
    stated = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools_scm"]["fallback_version"]
    assert metadata.dynamic_metadata("version", {}) == (version or stated)
