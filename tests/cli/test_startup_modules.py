"""What is imported before the first token: counted, since times are the machine's. benchmarks/startup.py has those."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "loaders"))
TELL = "print(json.dumps(sorted(sys.modules)))"
SLOW = {"email", "http", "pydantic", "prompt_toolkit", "rich", "ssl", "typer", "unittest", "xml"}  # never without need
OF_OTHERS = ("samebits.bench", "samebits.server", "samebits.verify", "samebits.kernels.triton", "samebits.kernels.wgsl")


def modules_after(code: str) -> list[str]:
    """What is imported when the code has run in an interpreter of its own."""
    call = [sys.executable, "-c", f"import json, sys\n{code}\n{TELL}"]
    done = subprocess.run(call, capture_output=True, text=True, timeout=120, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def command(*arguments: str) -> str:
    return f"""
from samebits.cli.main import main
sys.argv[1:] = {list(arguments)!r}
try: main()
except SystemExit as ended: assert not ended.code"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    from gguf_writer import tiny_model

    return str(tiny_model().write(tmp_path_factory.mktemp("startup") / "tiny.gguf"))


def check(found: list[str], most: int, most_of_ours: int) -> None:
    assert {name.partition(".")[0] for name in found} & SLOW == set()
    assert [name for name in found if name.startswith(OF_OTHERS)] == []
    ours = [name for name in found if name.startswith("samebits")]
    assert len(ours) <= most_of_ours, ours
    assert len(found) <= most, found


def test_the_package_alone_is_a_few_modules() -> None:
    check(modules_after("import samebits"), 80, 5)


def test_the_version_is_told_ahead_of_all_imports() -> None:
    found = modules_after(command("--version"))
    check(found, 92, 10)
    assert "click" not in found


def test_llm_alone_waits_for_no_engine() -> None:
    found = modules_after("import samebits; samebits.LLM")
    check(found, 160, 30)
    assert "numpy" not in found


def test_llm_imports_what_a_model_needs(model: str) -> None:
    found = modules_after(f"import samebits; samebits.LLM({model!r})")
    check(found, 493, 253)
    assert "samebits.models.gemma3" not in found  # an architecture is imported for a model of its kind
    assert "tokenizers" not in found


def test_the_first_token_of_a_chat_waits_for_little(model: str) -> None:
    found = modules_after(command("chat", "hi", "--model", model, "--max-tokens", "1"))
    check(found, 546, 270)
    assert "samebits.models.gemma3" not in found


def test_help_does_not_wait_for_the_engine() -> None:
    found = modules_after(command("chat", "-h"))
    check(found, 340, 90)
    assert "samebits.engine.engine" not in found


def test_cases_are_made_when_they_are_asked_for() -> None:
    asked = "from samebits.ops import OPS\nassert not [o.name for o in OPS if {'cases', 'space'} & set(vars(o))]"
    check(modules_after(asked), 400, 120)
