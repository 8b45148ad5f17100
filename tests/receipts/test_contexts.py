"""Models with longrope: a replay opens them in the context that decides their angles, or says that it did not."""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from gguf_writer import STRING, U32, Tensor, tiny_model

from samebits import LLM, SamplingParams
from samebits.cli import model_options
from samebits.cli import replay as replay_command
from samebits.cli.main import app
from samebits.engine.notary import numerics_of
from samebits.models.parts.rope import Rope, Scaling
from samebits.receipts.record import Receipt, from_json
from samebits.receipts.verdict import Cause

SWITCH, CONTEXT = 32, 128
PROMPT = "hello hi aaaa"
WISH = SamplingParams(max_tokens=8, temperature=1.0, seed=5, ignore_eos=True, receipt=True)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model whose angles are others in contexts beyond SWITCH."""
    scaling = {"type": (STRING, "longrope"), "original_context_length": (U32, SWITCH)}
    file = tiny_model(
        **{f"llama.rope.scaling.{name}": value for name, value in scaling.items()},
        **{"llama.context_length": (U32, CONTEXT)},
    )
    rng = np.random.default_rng(3)
    for old in file.tensors:
        if old.kind == 0 and len(old.dims) == 2:  # random, so that other angles give other tokens
            old.data = rng.normal(0, 0.3, old.dims).astype(np.float32).tobytes()
    for name, factor in (("short", 1.0), ("long", 3.0)):
        values = np.linspace(1, factor, 8, dtype=np.float32)
        file.tensors.append(Tensor(f"rope_factors_{name}.weight", (8,), 0, values.tobytes()))
    return file.write(tmp_path_factory.mktemp("longrope") / "longrope.gguf")


def made_in(path: Path, context_len: int, num_pages: int | None = None) -> Receipt:
    llm = LLM(path, context_len=context_len, num_pages=num_pages)
    found = llm.generate([PROMPT], WISH)[0].receipt
    assert found is not None
    return found


@pytest.fixture(scope="module")
def receipts(path: Path) -> dict[str, Receipt]:
    """The same request in contexts of both kinds."""
    return {
        "short": made_in(path, SWITCH),
        "long": made_in(path, CONTEXT),
        "few pages": made_in(path, CONTEXT, num_pages=3),  # 32 positions in pages, and the angles of a long context
    }


def replayed(tmp_path: Path, model: Path, *receipts: Receipt) -> tuple[int, list[dict[str, Any]]]:
    """What `samebits replay --json` exits with and prints."""
    file = tmp_path / "receipts.jsonl"
    file.write_bytes(b"\n".join(receipt.to_json() for receipt in receipts))
    done = CliRunner().invoke(app, ["replay", str(file), "--model", str(model), "--json"], catch_exceptions=False)
    return done.exit_code, json.loads(done.stdout)


def without_positions(receipt: Receipt) -> Receipt:
    """The receipt as versions without the field wrote it."""
    old = replace(receipt, numerics=replace(receipt.numerics, max_positions=None), sha256=None)
    return from_json(old.to_json())


def test_the_context_decides_the_answer_and_is_stated(receipts: dict[str, Receipt]) -> None:
    assert receipts["short"].answer.links != receipts["long"].answer.links == receipts["few pages"].answer.links
    stated = {name: (r.numerics.max_positions, r.context_len) for name, r in receipts.items()}
    assert stated == {"short": (SWITCH, SWITCH), "long": (CONTEXT, CONTEXT), "few pages": (CONTEXT, SWITCH)}


def test_another_context_is_not_checked_and_one_with_the_same_angles_is(
    path: Path, receipts: dict[str, Receipt]
) -> None:
    for context_len, is_long in ((SWITCH - 2, False), (SWITCH, False), (SWITCH + 1, True), (CONTEXT, True)):
        found = LLM(path, context_len=context_len).replay(list(receipts.values()))
        assert [v.is_same for v in found] == [not is_long, is_long, is_long]
        assert {v.cause for v in found} == {None, Cause.CONTEXT}
        assert all(not v.is_checked for v in found if v.cause)
        line = next(v for v in found if v.cause).line(receipts["short"], "cpu")
        assert line.startswith("not checked: the model was opened with another context")


def test_the_command_opens_the_model_in_every_context_that_is_stated(
    path: Path, receipts: dict[str, Receipt], tmp_path: Path
) -> None:
    assert replayed(tmp_path, path, *receipts.values())[0] == 0
    changed = replace(receipts["long"], sha256=None, prompt_ids=(*receipts["long"].prompt_ids[:-1], 70))
    status, found = replayed(tmp_path, path, *receipts.values(), from_json(changed.to_json()))
    assert (status, [v["cause"] for v in found]) == (1, [None, None, None, "prompt"])


def test_no_two_models_are_in_memory(
    path: Path, receipts: dict[str, Receipt], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model may need all memory there is: the one before is gone when the next is loaded."""
    opened: list[weakref.ref[Any]] = []
    load = model_options.load_model

    def noted(*arguments: Any, **options: Any) -> LLM:
        assert not any(runner() for runner in opened)
        llm = load(*arguments, **options)
        opened.append(weakref.ref(llm.runner))
        return llm

    monkeypatch.setattr(model_options, "load_model", noted)
    monkeypatch.setattr(replay_command, "SMALLEST_SIZE_CLASS", 4)  # so that there are two
    other_size = replace(receipts["long"], sha256=None, prompt_ids=(70,) * 20)
    assert replayed(tmp_path, path, *receipts.values(), from_json(other_size.to_json()))[0] == 1
    assert len(opened) == 4  # of each size, in both contexts


def test_an_old_receipt_is_confirmed_or_not_checked(path: Path, receipts: dict[str, Receipt], tmp_path: Path) -> None:
    old = [without_positions(receipt) for receipt in receipts.values()]
    assert b"max_positions" not in b"".join(receipt.to_json() for receipt in old)
    status, found = replayed(tmp_path, path, *old)
    assert (status, [v["cause"] for v in found]) == (3, [None, None, "context"])  # its pages say 32, its angles 128
    assert "does not state the context" in found[2]["detail"]


def test_a_stated_context_below_the_answers_is_no_receipt(receipts: dict[str, Receipt]) -> None:
    made = json.loads(receipts["long"].to_json())
    for wrong in (CONTEXT - 1, None, 0, "128"):
        made["numerics"]["max_positions"] = wrong
        with pytest.raises(ValueError, match="max_positions"):
            from_json(json.dumps(made).encode())


def test_a_model_with_one_set_of_angles_states_no_positions(llm: LLM) -> None:
    assert numerics_of(llm.runner).max_positions is None


ROPES: dict[str, Callable[[], Scaling]] = {
    "none": Scaling,
    "linear": lambda: Scaling("linear", 4.0),
    "llama3": lambda: Scaling("llama3", 8.0, 32, 1.0, 4.0),
    "yarn": lambda: Scaling("yarn", 4.0, 32),
    "longrope": lambda: Scaling("longrope", original_len=32, short=(1.0,) * 4, long=(2.0,) * 4),
    "factors": lambda: Scaling("factors"),
}


@pytest.mark.parametrize("kind", ROPES)
def test_no_other_rotation_depends_on_the_number_of_positions(kind: str) -> None:
    rope = Rope(500.0, 8, ROPES[kind]())

    def table(num_positions: int) -> np.ndarray:
        return rope.table(num_positions, lambda name: np.linspace(1, 2, 4, dtype=np.float32))[:8]

    tables = {n: table(n) for n in (8, 31, 32, 33, 64, 1024)}
    for number, found in tables.items():
        is_beyond = rope.switch_len is not None and number > rope.switch_len
        assert np.array_equal(found, tables[8]) != is_beyond


def test_nothing_else_of_the_limits_reaches_a_receipts_bits(path: Path) -> None:
    """A new limit needs a decision: stated in the receipt, or shown not to change bits."""
    from samebits.models.parts import Limits

    stated = {"max_positions", "k_format", "v_format"}
    no_bits = {"max_tokens", "max_sequences", "num_pages", "page_size"}  # tests/engine/test_promise.py
    assert {f.name for f in fields(Limits)} == stated | no_bits
