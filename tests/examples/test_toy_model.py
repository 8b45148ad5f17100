"""A whole model on the example backend: steps of any size, with the reference's bits and nothing on the fallback."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from samebits import LLM, SamplingParams
from samebits.backends.discovery import get
from samebits.formats import Q4_1, Q8_0
from samebits.verify.graph_cases import GRAPH_CASES
from samebits.verify.graphs import verify_graph

sys.path.insert(0, str(Path(__file__).parents[1] / "loaders"))
from gguf_writer import Tensor, tiny_model

TOY = "samebits_toy:ToyBackend"
PROMPTS = ("hi", "hello hello hello hello hello hello", "a longer one that takes a few pages")  # 1 to 3 pages
GREEDY = SamplingParams(max_tokens=5, temperature=0, hash_logits=True)
DRAWN = SamplingParams(max_tokens=5, temperature=0.9, top_k=40, top_p=0.9, min_p=0.01, seed=7, hash_logits=True)
FORKED = SamplingParams(max_tokens=4, temperature=1.2, seed=3, n=3, hash_logits=True)  # copies pages


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two layers of a llama in the formats of the default model: q4_1, its tied embedding q8_0, norms f32."""
    file, rng = tiny_model(), np.random.default_rng(1)

    def drawn(old: Tensor) -> Tensor:
        shape = old.dims[::-1]
        values = rng.normal(1.0 if len(shape) == 1 else 0.0, 1.5 / np.sqrt(shape[-1]), shape).astype(np.float32)
        if len(shape) == 1:
            return Tensor(old.name, old.dims, 0, values.tobytes())
        kind, fmt = (8, Q8_0) if old.name == "token_embd.weight" else (3, Q4_1)
        return Tensor(old.name, old.dims, kind, fmt.pack(values).data.tobytes())

    file.tensors = [drawn(t) for t in file.tensors]
    return file.write(tmp_path_factory.mktemp("models") / "tiny-q4_1.gguf")


@pytest.fixture(scope="module")
def toy(path: Path) -> LLM:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parents[2] / "examples/toy-accelerator/src"))
        return LLM(path, backend=TOY)


@pytest.fixture(scope="module")
def reference(path: Path) -> LLM:
    return LLM(path, backend="reference")


def test_every_node_of_the_step_and_the_draw_runs_on_the_device(toy: LLM) -> None:
    assert toy.numerics == "portable"
    assert toy.engine.fallbacks == ()
    formats = {value.spec.format for value in toy.runner.graph.inputs if value.name in toy.runner.graph.weights}
    assert formats == {"f32", "q4_1", "q8_0"}


def test_logits_of_a_whole_prompt_have_the_references_bits(toy: LLM, reference: LLM) -> None:
    tokens = list(range(3, 45))
    got, want = (llm.score(tokens, logits=True).logits for llm in (toy, reference))
    np.testing.assert_array_equal(got.view(np.uint32), want.view(np.uint32))


@pytest.mark.parametrize("params", [GREEDY, DRAWN, FORKED], ids=["greedy", "drawn", "forked"])
def test_answers_have_the_references_tokens_and_hashes(toy: LLM, reference: LLM, params: SamplingParams) -> None:
    """Prompts of several lengths in one batch, then a token per step: sizes change from step to step."""
    got, want = (
        [(answer.token_ids, answer.logits_sha256) for answer in llm.generate(list(PROMPTS), params)]
        for llm in (toy, reference)
    )
    assert got == want


def test_a_bias_is_drawn_with_on_the_fallback_and_said_so(toy: LLM, reference: LLM) -> None:
    """`sample` touches no cache, so what the device refuses of it may run elsewhere."""
    biased = SamplingParams(max_tokens=3, temperature=0.9, seed=5, logit_bias={70: 9.0, 80: 9.0})
    got, want = (llm.generate(["hi"], biased)[0].token_ids for llm in (toy, reference))
    assert got == want
    assert toy.engine.fallbacks == ("node 0, sample: on the fallback: toy-tiles sample has no bias and no counts",)


@pytest.mark.parametrize("name", ["llama-q4_0", "long-chain", "rows-0"])
def test_graphs_pass_verify_with_open_sizes(toy: LLM, name: str) -> None:
    found = get(TOY)
    assert found.backend is not None
    assert found.caps is not None
    [case] = [case for case in GRAPH_CASES if case.id == name]
    [result] = verify_graph(found.backend, found.caps, case, ("portable",), seed=0)
    assert (result.status, result.reason, result.not_compared) == ("pass", "", ())
