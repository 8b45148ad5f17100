"""Commands on the pages: bash runs those that take seconds, in order; of the others the parts are known.

A tiny model stands in for the default one. NOT_RUN lists what is not run, with the reason; a pattern there that fits no
command fails a test.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from pages import PAGES, ROOT, SAMEBITS, SERVE, Block, blocks, commands, words

from samebits.cli.commands import CommandLine

SERVER = "http://127.0.0.1:8000"
LANGUAGES = {"sh", "console", "text", "python", "wgsl", "yaml", "toml", "json"}
# pattern of a command's start -> why it is not run
NOT_RUN = {
    r"make ": "builds, installs, or takes minutes",
    r"(python3? -m venv|(~/peers/bin/)?pip install|CMAKE_ARGS)": "installs packages from the network",
    r"(podman|cp|install|systemctl) ": "changes the machine",
    r"python benchmarks/": "measures for minutes, some on a GPU",
    r"python tests/fuzz/": "test_fuzz_driver.py runs targets",
    r"(lm_eval|python -m samebits.lm_eval) ": "needs lm-eval and its data sets: make clients",
    r"samebits serve": "goes on until it is stopped: tests/server starts it",
    r"samebits (chat|verify|warm|devices|serve) .*--backend (cuda|webgpu)": "needs a device",
    r"samebits warm": "needs Triton",
    r"samebits pull hf:": "asks the network",
    r"samebits remove ": "removes what the line before has pulled",
    r"samebits bench (model|ops|serve)": "measures for minutes",
    r"samebits bench schedule --(replicas|arrivals)": "takes minutes, or a file of yours",
    r"samebits verify (--backend (cpu|toy|NAME)( |$)(?!.*--case)|--backend toy$)": "takes minutes: see tests/verify",
    r"samebits verify --backend toy .*--case (T=33|reruns|soak|llama)": "takes half a minute: see tests/examples",
    r"samebits verify --backend (my_backend|broken)": "tests/examples/test_guide.py runs it",
    r"samebits (chat|diff|explain|score|generate) .*--backend toy": "tests/examples/test_toy_model.py runs it",
    r"samebits (explain|diff) .*--backend toy": "tests/examples/test_toy_model.py runs it",
    r"samebits support --backend toy": "tests/examples runs the toy",
    r"samebits golden (make|check)": "tests/verify_golden makes and checks them",
    r"samebits compare mine theirs": "needs another machine's folder",
}


# What bash may be given besides `samebits`: nothing that changes anything outside of its folder.
HARMLESS = re.compile(
    r"samebits |curl -s http://127\.0\.0\.1:8000/|openssl (genpkey|pkey) |mkdir -p receipts$|id=\$\(python3 -c "
)


def shell_blocks() -> Iterator[tuple[Block, str]]:
    for block in blocks("sh", "console", "text"):
        for command in commands(block):
            yield block, command


def reason_not_to_run(command: str) -> str | None:
    bare = re.sub(r"^([A-Z_]+=\S+ +)+(?=samebits)", "", command)
    return next((why for pattern, why in NOT_RUN.items() if re.match(pattern, bare)), None)


def context_of(given: list[str]) -> click.Context:
    """Read a command line as the real one is read, to its last flag, and run nothing."""
    group: click.Command = CommandLine()
    context = group.make_context("samebits", list(given), resilient_parsing=False)
    rest = given
    while isinstance(group, click.Group):
        _, found, rest = group.resolve_command(context, rest)
        assert found is not None
        group = found
        context = group.make_context(" ".join(given[:2]), list(rest), parent=context)
    return context


def test_the_server_of_these_tests_is_started_as_a_page_says() -> None:
    assert shlex.join(["samebits", *SERVE]) in [command for _, command in shell_blocks()]


def test_every_fence_says_what_it_holds() -> None:
    unknown = [f"{b.page}:{b.line}: {b.language!r}" for b in blocks() if b.language not in LANGUAGES]
    assert unknown == []


def test_reasons_are_not_stale() -> None:
    told = [re.sub(r"^([A-Z_]+=\S+ +)+(?=samebits)", "", command) for _, command in shell_blocks()]
    assert [pattern for pattern in NOT_RUN if not any(re.match(pattern, command) for command in told)] == []


@pytest.mark.parametrize("page", sorted({block.page for block, _ in shell_blocks()}))
def test_commands_have_their_flags_targets_and_files(page: str) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    targets = re.findall(r"^([\w-]+)(?: [\w-]+)*:", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for command in [c for b, c in shell_blocks() if b.page == page]:
        given = words(command)
        if given[0] == "samebits" and given[1:] != ["--help"]:
            context_of(given[1:])
        elif given[0] == "make":
            goals = [word for word in given[1:] if "=" not in word]
            assert goals, command
            assert set(goals) <= set(targets), command
        elif given[0] == "python" and given[1].endswith(".py"):
            source = (ROOT / given[1]).read_text() + (ROOT / "tests/fuzz/fuzz_driver.py").read_text()
            assert [flag for flag in given if flag.startswith("--") and f'"{flag}"' not in source] == [], command
        for extra in re.findall(r"(?:samebits|\.)\[([\w,-]+)\]", command):
            assert set(extra.split(",")) <= set(extras), command
        for name in re.findall(r"(?<!/)\b((?:packaging|examples|benchmarks|tests)/[\w./-]+)", command):
            assert (ROOT / name).exists(), command


def test_the_list_of_commands_is_what_help_prints() -> None:
    (shown,) = (b.text for b in blocks("console", pages=("docs/run-a-model.md",)) if "$ samebits --help" in b.text)
    printed = CliRunner().invoke(CommandLine(), ["--help"], prog_name="samebits").stdout
    assert shown == "$ samebits --help\n" + printed


@pytest.fixture
def environment(tmp_path: Path, model_cache: Path) -> dict[str, str]:
    """A shell in which `samebits` is this tree's."""
    (tmp_path / "bin").mkdir()
    shim = tmp_path / "bin" / "samebits"
    shim.write_text(f'#!/bin/sh\nexec {shlex.join(SAMEBITS)} "$@"\n')
    shim.chmod(0o755)
    path = os.pathsep.join([str(shim.parent), str(Path(sys.executable).parent), os.environ["PATH"]])
    return {**os.environ, "PATH": path, "SAMEBITS_CACHE": str(model_cache), "COLUMNS": "120"}


def prepare(page: str, folder: Path) -> dict[str, str]:
    """Put the files there that a page speaks of; its placeholders, and what stands for them."""
    if page != "docs/models.md":
        return {}
    shutil.copytree(ROOT / "tests/models/data/llama", folder / "FOLDER")
    return {"quantize IN": "quantize model.gguf"}


def runnable(page: str) -> list[str]:
    """The commands of a page that bash runs, in order."""
    chosen = [command for block, command in shell_blocks() if block.page == page and not reason_not_to_run(command)]
    unknown = [command for command in chosen if not HARMLESS.match(command)]
    if unknown:
        raise ValueError(f"{page}: list these in NOT_RUN with a reason, or in HARMLESS: {unknown}")
    return chosen


PAGES_TO_RUN = [page for page in PAGES if runnable(page)]


def test_there_are_pages_to_run() -> None:
    assert {"docs/prove-determinism.md", "docs/receipts.md", "docs/run-a-model.md"} <= set(PAGES_TO_RUN)


@pytest.mark.parametrize("page", PAGES_TO_RUN)
def test_bash_runs_the_commands_of_a_page(
    page: str, tmp_path: Path, environment: dict[str, str], server_url: str
) -> None:
    script = "\n".join(runnable(page)).replace(SERVER, server_url)
    needed = {word for command in runnable(page) for word in re.findall(r"\b(?:curl|openssl)\b", command)}
    if missing := [tool for tool in sorted(needed) if shutil.which(tool) is None]:
        pytest.skip(f"{', '.join(missing)} not found")
    for placeholder, text in prepare(page, tmp_path).items():
        assert placeholder in script
        script = script.replace(placeholder, text)
    call = ["bash", "-euxo", "pipefail", "-c", script]
    done = subprocess.run(call, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
