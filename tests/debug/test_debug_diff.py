"""`samebits diff`: it names the op that is wrong, the layer and the element, and stays silent where all bits agree."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_models import TOKENS, Command

from samebits.debug.distance import tensor_diff
from samebits.debug.labels import Label
from samebits.debug.prepare import open_model, step_graph
from samebits.debug.text import bar


def report(command: Command, folder: Path, *arguments: str) -> tuple[int, str, dict[str, Any]]:
    file = folder / "diff.json"
    status, out, err = command("diff", *arguments, "--tokens", TOKENS, "--output", str(file))
    assert err == ""
    return status, out, json.loads(file.read_text())


@pytest.mark.parametrize("fused", ["--unfused", "--fused"])
@pytest.mark.parametrize("mode", ["--carry", "--same-inputs"])
def test_a_backend_agrees_with_itself(
    tiny: Callable[[str], str], command: Command, tmp_path: Path, mode: str, fused: str
) -> None:
    pair = ("--backend", "reference", "--backend", "reference")
    status, out, told = report(command, tmp_path, tiny("gemma2"), *pair, mode, fused)
    assert status == 0
    assert "all bits agree" in out
    assert told["first"] is None
    assert {t["where"] for t in told["tensors"]} == {None}


def test_the_first_wrong_tensor_is_named_with_its_place(
    tiny: Callable[[str], str], command: Command, tmp_path: Path
) -> None:
    status, out, told = report(command, tmp_path, tiny("qwen3"), "--backend", "planted_debug:HeadNormEps")
    assert status == 1
    assert "first difference: layers.0.attn.q_norm (rms_norm)" in out
    first = told["first"]
    assert (first["label"], first["op"], first["layer"]) == ("layers.0.attn.q_norm", "rms_norm", 0)
    assert first["where"].startswith("row 0, row 0, element 0: ")
    assert first["max_ulp"] > 0
    assert 0 < first["relative"] < 1e-2
    wrong = {t["label"] for t in told["tensors"] if t["where"]}
    assert "layers.0.attn.o" in wrong  # carried along
    assert "layers.0.attn.v" not in wrong  # made before
    assert [g["name"] for g in told["by_stage"]] == ["embed", "layers.0", "layers.1", "output"]
    assert [bool(g["num_different"]) for g in told["by_stage"]] == [False, True, True, True]


def test_on_the_same_inputs_only_the_wrong_op_is_blamed(
    tiny: Callable[[str], str], command: Command, tmp_path: Path
) -> None:
    planted = ("--backend", "planted_debug:HeadNormEps", "--same-inputs")
    status, out, told = report(command, tmp_path, tiny("qwen3"), *planted)
    assert status == 1
    wrong = [t["label"] for t in told["tensors"] if t["where"]]
    assert wrong == [f"layers.{i}.attn.{name}_norm" for i in (0, 1) for name in "qk"]
    assert [g["name"] for g in told["by_op"] if g["num_different"]] == ["rms_norm"]
    assert "rms_norm  4 of 9" in out


def test_a_defect_of_one_layer_is_found_in_it(tiny: Callable[[str], str], command: Command, tmp_path: Path) -> None:
    planted = ("--backend", "reference", "--backend", "planted_debug:FullAttention")
    _, _, carried = report(command, tmp_path, tiny("gemma2"), *planted)
    assert carried["first"]["label"] == "layers.1/paged_attention.0"
    assert carried["first"]["max_ulp"] == 1
    assert carried["first"]["is_close"]
    assert carried["first"]["where"].startswith("token 0, head 0, element 0: ")
    _, _, isolated = report(command, tmp_path, tiny("gemma2"), *planted, "--same-inputs")
    assert [t["label"] for t in isolated["tensors"] if t["where"]] == ["layers.1/paged_attention.0"]


def test_a_walk_that_ends_early_tells_what_was_seen(
    tiny: Callable[[str], str], command: Command, tmp_path: Path
) -> None:
    status, out, told = report(command, tmp_path, tiny("llama"), "--backend", "planted_debug:Infinite")
    assert status == 1
    assert told["first"]["label"] == "layers.0/silu_and_mul.0"
    assert told["first"]["one_sided"] == 1
    assert "layers.0.ffn.down (gemm)" in told["stopped"]
    assert "stopped after 21 of 48 tensors" in out
    assert "not finite" in out
    status, out, err = command("diff", tiny("llama"), "--backend", "planted_debug:Raises", "--tokens", "1")
    assert (status, out) == (2, "")  # nothing differed before it: there is no comparison to show
    assert "layers.0/add.0 (add): RuntimeError" in err


def test_the_page_is_whole_and_alone(tiny: Callable[[str], str], command: Command, tmp_path: Path) -> None:
    file = tmp_path / "diff.html"
    planted = ("--backend", "planted_debug:HeadNormEps", "--same-inputs")
    assert command("diff", tiny("qwen3"), *planted, "--tokens", TOKENS, "--html", str(file))[0] == 1
    page = file.read_text()
    assert [p.name for p in tmp_path.iterdir()] == [file.name]  # no partial file is left
    assert "first difference: layers.0.attn.q_norm" in page
    svg = page[page.index("<svg") : page.index("</svg>") + len("</svg>")]
    circles = ElementTree.fromstring(svg).findall("circle")
    assert len(circles) == sum(len(n.outputs) for n in step_graph(open_model(tiny("qwen3")), 6).nodes)
    assert {c.get("class") for c in circles} == {"same", "beyond"}  # another eps is no rounding
    assert "http" not in page  # nothing is fetched


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--backend", "planted_debug:Nobody", "--tokens", "1"), "backend planted_debug:Nobody: failed to load"),
        (("--backend", "null", "--backend", "null", "--backend", "null"), "3 backends, but must have one or two"),
        (("--backend", "null", "--html", "/no/such/folder/x"), "a folder that exists"),
        (("--backend", "null", "--numerics", "portable", "--tokens", "1"), "null cannot give portable: embedding"),
    ],
)
def test_mistakes_are_one_line(
    tiny: Callable[[str], str], command: Command, arguments: tuple[str, ...], message: str
) -> None:
    status, out, err = command("diff", tiny("llama"), *arguments)
    assert (status, out, len(err.splitlines())) == (2, "", 1)
    assert message in err


def test_distances_of_tensors_that_cannot_be_measured(tiny: Callable[[str], str]) -> None:
    node, label = step_graph(open_model(tiny("llama")), 4).nodes[0], Label("embed", "embed", None)
    zeros, ones = np.zeros((2, 64), np.float32), np.ones((2, 64), np.float32)
    assert tensor_diff(label, node, 0, ones, zeros).relative is None
    assert tensor_diff(label, node, 0, ones[:1], ones).where == "shape [1, 64] instead of [2, 64]"
    assert tensor_diff(label, node, 0, -zeros, zeros).max_ulp == 0  # other bits, no distance
    assert not tensor_diff(label, node, 0, -zeros, zeros).is_same


def test_bars_grow_with_the_error() -> None:
    assert [len(bar(r)) for r in (0.0, 1e-12, 1e-6, 1e-3, 1.0, None)] == [0, 1, 10, 20, 30, 30]
