"""`samebits trace`: the same text from every run, the engine's own bits, and nothing else on standard output."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tiny_models import TOKENS, Command

import samebits.formats  # noqa: F401  (fills FORMATS)
from samebits.backends.discovery import default_name, get
from samebits.core.format import FORMATS, Packed
from samebits.debug.labels import Label
from samebits.debug.prepare import Prefill, open_model, step_graph
from samebits.debug.summary import line, summarize
from samebits.engine.runner import Runner
from samebits.models.parts import Limits

HERE = Label("x", "embed", None)


def test_two_runs_are_equal_and_the_file_has_every_tensor(
    tiny: Callable[[str], str], command: Command, tmp_path: Path
) -> None:
    file = tmp_path / "trace.json"
    status, out, err = command("trace", tiny("llama"), "--tokens", TOKENS, "--output", str(file))
    assert status == 0
    assert f"{default_name()} at portable" in err
    assert command("trace", tiny("llama"), "--tokens", TOKENS)[:2] == (0, out)
    told = json.loads(file.read_text())
    graph = step_graph(open_model(tiny("llama")), 6)
    assert len(told["tensors"]) == len(out.splitlines()) == sum(len(n.outputs) for n in graph.nodes)
    assert [t["label"] for t in told["tensors"]] == [text.split()[0] for text in out.splitlines()]
    assert [p.name for p in tmp_path.iterdir()] == [file.name]


@pytest.mark.parametrize("model_type", ["llama", "gemma2"])
@pytest.mark.parametrize("fused", ["--unfused", "--fused"])
def test_the_last_tensor_is_what_the_engine_computes(
    tiny: Callable[[str], str], command: Command, tmp_path: Path, model_type: str, fused: str
) -> None:
    file = tmp_path / "trace.json"
    assert command("trace", tiny(model_type), "--tokens", TOKENS, fused, "--output", str(file))[0] == 0
    checkpoint = open_model(tiny(model_type))
    prefill = Prefill(checkpoint, tuple(map(int, TOKENS.split(","))))
    logits = Runner(checkpoint, get("reference"), Limits(64, 1, 4, max_positions=64)).run(prefill.batch()).logits
    told = json.loads(file.read_text())["tensors"][-1]
    assert told["shape"] == list(logits.shape)
    assert told["sha256"] == hashlib.sha256(logits.tobytes()).hexdigest()


def test_layer_filter_and_values_choose_what_is_shown(tiny: Callable[[str], str], command: Command) -> None:
    _, every, _ = command("trace", tiny("llama"), "--tokens", TOKENS, "--values", "2")
    _, some, _ = command(
        "trace", tiny("llama"), "--tokens", TOKENS, "--layer", "1", "--filter", "rope", "--values", "2"
    )
    assert [text.split()[0] for text in some.splitlines()] == ["layers.1/rope.0", "layers.1/rope.1"]
    assert {text.split()[3] for text in some.splitlines()} <= {text.split()[3] for text in every.splitlines()}
    assert all(len(text.partition("[")[2].rpartition("[")[2].split()) == 2 for text in some.splitlines())


def test_summary_counts_what_is_not_finite_and_hashes_the_scale() -> None:
    x = np.array([[1.0, np.nan], [np.inf, -3.0]], np.float32)
    found = summarize(HERE, "op", x, 3)
    assert (found.num_nan, found.num_inf, found.min, found.max, found.mean_abs) == (1, 1, -3.0, 1.0, 2.0)
    assert found.first == ("1.0", "nan", "inf")
    assert found.sha256 == hashlib.sha256(x.tobytes()).hexdigest()
    nothing = summarize(HERE, "op", np.full(2, np.nan, np.float32), 1)
    assert nothing.max is None
    assert "min - " in line(nothing, 4)
    packed = FORMATS["q8_0"].pack(np.ones((1, 32)))
    other = Packed(packed.format, packed.data, np.float32(2))
    assert summarize(HERE, "op", packed, 1).sha256 != summarize(HERE, "op", other, 1).sha256


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--tokens", "1,x"), "token ids such as 1,2,3"),
        (("--tokens", "1,96"), "token id is 96, but must be from 0 to 95"),
        (("--tokens", "1", "--prompt", "a"), "both"),
        (("--tokens", ",".join(["1"] * 129)), "must be from 1 to 128"),
        (("--tokens", "1", "--layer", "2"), "layers 0 to 1"),
        (("--tokens", "1", "--output", "/no/such/folder/x"), "a folder that exists"),
        (("--prompt", "a"), "tokenizer"),
        (("--tokens", "1", "--backend", "null", "--numerics", "fast"), "null cannot give fast: embedding"),
    ],
)
def test_mistakes_are_one_line(
    tiny: Callable[[str], str], command: Command, arguments: tuple[str, ...], message: str
) -> None:
    status, out, err = command("trace", tiny("llama"), *arguments)
    assert (status, out, len(err.splitlines())) == (2, "", 1)
    assert message in err


def test_a_kernel_that_raises_is_named_in_one_line(tiny: Callable[[str], str], command: Command) -> None:
    status, out, err = command("trace", tiny("llama"), "--tokens", "1,2", "--backend", "planted_debug:Raises")
    assert status == 2
    assert out.splitlines()[-1].startswith("layers.0.attn.o")
    reason = "error: planted_debug:Raises: layers.0/add.0 (add): RuntimeError: launch failed: invalid argument"
    assert err.splitlines()[-1] == reason
