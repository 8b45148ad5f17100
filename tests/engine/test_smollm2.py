"""The default model: stored hashes, an independent oracle, and a sensible answer."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from samebits import LLM, SamplingParams
from samebits.engine.engine import Engine
from samebits.scheduler import Policy

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from oracle_kl import kl_and_agreement

DATA = Path(__file__).parent / "data"
# SHA-256 over the float32 logits of all positions, portable tier, numerics version 1, f16 cache
HASHES = {
    "capital": "6d2f5b11df06163f00feae1e0c5c9702b2c76b195b38468f6632c15964402181",
    "sky": "154db96098c42ee72f796c291a088a70278fd78dd180ce50dd8d64357370b97f",
}


@pytest.fixture(scope="module")
def scores(smollm2: LLM) -> dict:
    found = {}
    for name in HASHES:
        oracle = dict(np.load(DATA / f"{name}.npz"))
        found[name] = (oracle, smollm2.score(oracle["token_ids"].tolist(), logits=True))
    return found


def test_logits_agree_with_the_oracle(scores: dict) -> None:
    """Two short prompts; benchmarks/oracle_kl.py pools them with a long one against the project's bars."""
    pairs = [kl_and_agreement(result.logits, oracle) for oracle, result in scores.values()]
    assert np.concatenate([kl for kl, _ in pairs]).mean() <= 0.006
    assert np.concatenate([agree for _, agree in pairs]).mean() >= 0.94


@pytest.mark.parametrize("name", HASHES)
def test_portable_logits_have_the_stored_hash(smollm2: LLM, scores: dict, name: str) -> None:
    assert smollm2.numerics == "portable"
    assert scores[name][1].logits_sha256 == HASHES[name]


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_native_kernels_have_the_stored_hashes_with_any_number_of_threads(smollm2: LLM, threads: int) -> None:
    if smollm2.runner.backend.name != "cpu":
        pytest.skip("native kernels are not built")
    smollm2.runner.backend.set_threads(threads)
    for name, stored in HASHES.items():
        tokens = np.load(DATA / f"{name}.npz")["token_ids"].tolist()
        assert smollm2.score(tokens).logits_sha256 == stored


def test_prompts_in_chunks_of_any_size_have_the_stored_hash(smollm2: LLM) -> None:
    """One token a step, several, and tiles of both kinds of matrix units: all the same bits."""
    tokens = np.load(DATA / "sky.npz")["token_ids"].tolist()
    for chunk in (1, 5, 16, 33):
        engine = Engine(smollm2.runner, policy=Policy(prefill_budget=chunk))
        job = engine.score(tokens)
        engine.complete(job)
        assert job.score().logits_sha256 == HASHES["sky"]


def test_it_knows_the_capital_of_france(smollm2: LLM) -> None:
    answer = smollm2.generate(["The capital of France is"], SamplingParams(max_tokens=2, temperature=0))[0]
    assert answer.text.startswith(" Paris")


def test_the_chat_prompt_is_the_oracles(smollm2: LLM, scores: dict) -> None:
    prompt = smollm2.chat_prompt([{"role": "user", "content": "Explain in two sentences why the sky is blue."}])
    assert prompt == scores["sky"][0]["token_ids"].tolist()
