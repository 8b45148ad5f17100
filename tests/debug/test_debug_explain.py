"""`samebits explain`: every node, the kernel it gets, and the op that stands in a tier's way."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny_models import Command, write_tiny

from samebits.backends.discovery import get
from samebits.core.tiers import Tier
from samebits.debug.explain import explain
from samebits.debug.explain_text import as_text, heading
from samebits.debug.prepare import open_model, step_graph


def test_every_node_is_listed_with_its_kernel(tiny: Callable[[str], str], command: Command) -> None:
    status, out, _ = command("explain", tiny("llama"), "--unfused", "--json", "--backend", "reference")
    told = json.loads(out)
    nodes = step_graph(open_model(tiny("llama")), 16).nodes
    assert status == 0
    assert [n["op"] for n in told["nodes"]] == [n.op.name for n in nodes]
    assert {(n["language"], n["tier"]) for n in told["nodes"]} == {("numpy", "portable")}
    assert sum(n for kernels in told["totals"].values() for n in kernels.values()) == len(nodes)
    assert told["tier"] == "portable"


def test_equal_layers_show_once_unless_all_are_asked_for(tmp_path: Path, command: Command) -> None:
    model = str(write_tiny(tmp_path / "m", "llama", num_layers=4))
    _, once, _ = command("explain", model, "--unfused")
    assert "layers.0-3 x4" in once
    assert once.count("attn.q ") == 1
    _, fused, _ = command("explain", model)
    assert "layers.1-2 x2" in fused  # the first has no residual to add, the last computes the rows asked for
    assert "ffn.gate+up" in fused
    _, every, _ = command("explain", model, "--unfused", "--all")
    assert every.count("attn.q ") == 4


def test_a_refused_tier_names_the_op(tiny: Callable[[str], str], command: Command) -> None:
    status, out, err = command("explain", tiny("llama"), "--backend", "null", "--numerics", "portable")
    assert status == 2
    assert err.strip() == "error: null cannot give portable: embedding x2: null/_nothing claims only none"
    assert "NO KERNEL" in out
    assert "which cannot leave the device" in out  # why no fallback helps
    status, out, err = command("explain", tiny("llama"), "--backend", "null")
    assert (status, err) == (0, "")
    assert "the model gets none by default" in out


def test_refusals_fallbacks_and_weaker_tiers_are_told(tiny: Callable[[str], str], command: Command) -> None:
    status, out, err = command("explain", tiny("llama"), "--unfused", "--backend", "planted_debug:NoRope")
    assert (status, err) == (0, "")
    assert "the model gets portable by default" in out
    assert "portable, invariant, fast: with a fallback\n  rope x4: rope: no table in constant memory" in out
    assert "refused: rope: no table in constant memory" in out
    assert "fallback: rope x4 on reference" in out

    status, out, err = command("explain", tiny("llama"), "--backend", "planted_debug:FastGemm")
    assert (status, err) == (0, "")
    assert "gemm x15: planted/defective_gemm claims only fast" in out
    assert "fallback: gemm x15 on reference" in out
    assert "fast: yes" in out
    status, out, _ = command("explain", tiny("llama"), "--backend", "planted_debug:FastGemm", "--numerics", "fast")
    assert status == 0
    assert "the model gets fast\n" in out
    assert "planted/defective_gemm: fast" in out


def test_layers_that_differ_keep_their_numbers(tiny: Callable[[str], str]) -> None:
    graph = step_graph(open_model(tiny("llama")), 16)
    told = explain(graph, "llama", get("reference"), Tier.INVARIANT, fused=False)
    layers = [[n for n in told.nodes if n.layer == i] for i in (0, 1)]
    assert heading([layers[0]]) == "layers.0"
    assert heading(layers) == "layers.0-1 x2"
    assert "kernels at invariant" in as_text(told)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("no-such-file",), "no-such-file"),
        (("MODEL", "--backend", "abacus"), "unknown backend 'abacus'"),
        (("MODEL", "--numerics", "exact"), "one of fast, invariant, portable"),
    ],
)
def test_mistakes_are_one_line(
    tiny: Callable[[str], str], command: Command, arguments: tuple[str, ...], message: str
) -> None:
    model = tiny("llama")
    status, out, err = command("explain", *(model if a == "MODEL" else a for a in arguments))
    assert (status, out, len(err.splitlines())) == (2, "", 1)
    assert message in err


@pytest.mark.parametrize("fused", ["--fused", "--unfused"])
def test_experts_and_what_a_token_reads_are_told(command: Command, fused: str) -> None:
    model = Path(__file__).parents[1] / "models" / "data" / "mixtral" / "model-f32.gguf"
    status, out, _ = command("explain", str(model), "--backend", "reference", "--json", fused)
    told = json.loads(out)["reading"]
    assert status == 0
    vocab, hidden, ffn, experts, top_k = 96, 32, 20, 4, 2
    attention, norms, router = 2 * hidden * hidden + 2 * 16 * hidden, 2 * hidden, experts * hidden
    shared, expert = attention + norms + router, 3 * ffn * hidden
    top = vocab * hidden + hidden
    assert told["weight_bytes"] == 4 * (top + vocab * hidden + 2 * (shared + experts * expert))
    assert told["active_bytes"] == 4 * (top + hidden + 2 * (shared + top_k * expert))
    assert (told["num_mixtures"], told["num_experts"], told["top_k"]) == (2, experts, top_k)
    _, text, _ = command("explain", str(model), "--backend", "reference", fused)
    assert "0.11 MB of weights, of which a token reads 0.07 MB\n" in text
    assert "mixtures of experts: 2, in each a token chooses 2 of 4\n" in text
    assert "numpy/route: portable" in text
