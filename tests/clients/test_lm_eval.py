"""lm-eval on a small task of each kind: our server and the model `samebits` give the same numbers in any batch."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from live_server import NAME, Running

pytest.importorskip("lm_eval", reason="needs lm-eval: make clients")

from samebits import LLM
from samebits.loaders.cache import resolve
from samebits.loaders.catalog import DEFAULT_MODEL

TASK_FOLDER = Path(__file__).parent / "tasks"
TASKS = ["samebits_choice", "samebits_answer", "samebits_text"]
MAX_LENGTH = 40  # shorter than a text, which is cut into windows


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Questions are files in the tasks' folder; nothing is asked of the hub."""
    monkeypatch.chdir(TASK_FOLDER)
    import datasets.config

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path_factory.getbasetemp() / "datasets")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)


def evaluated(model: str, arguments: dict[str, Any], batch_size: int) -> dict[str, Any]:
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager

    import samebits.lm_eval.model  # noqa: F401

    return simple_evaluate(
        model=model,
        model_args={**arguments, "max_length": MAX_LENGTH},
        tasks=TASKS,
        batch_size=batch_size,
        bootstrap_iters=0,
        task_manager=TaskManager(include_path=str(TASK_FOLDER), include_defaults=False),
    )


def answers_of(found: dict[str, Any]) -> dict[str, list[Any]]:
    """What the model said to every request of every task: log-likelihoods with greedy flags, texts."""
    return {task: [sample["resps"] for sample in found["samples"][task]] for task in TASKS}


def digest(found: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps([found["results"], answers_of(found)], sort_keys=True).encode()).hexdigest()


def test_a_server_and_the_model_give_the_same_bits_in_any_batch(server: Running) -> None:
    over_http = {"model": NAME, "base_url": f"{server.url}/v1/completions"}
    here = {"model": str(resolve(DEFAULT_MODEL)), "context_len": 8192}
    served = [evaluated("local-completions", over_http, size) for size in (1, 8)]
    direct = [evaluated("samebits", here, size) for size in (1, 8)]
    assert len({digest(found) for found in (*served, *direct)}) == 1
    alone, among = (found["config"]["logits_sha256"] for found in direct)
    assert alone == among
    flags = [is_greedy for sample in answers_of(served[0])["samebits_choice"] for ((_, is_greedy),) in sample]
    assert set(flags) == {True, False}  # the questions are easy enough for some answers to be the likeliest
    assert any(text for sample in answers_of(served[0])["samebits_answer"] for (text,) in sample)


def test_log_likelihoods_are_those_of_score(server: Running) -> None:
    """Exactly, from the log-probabilities of the continuation's tokens, with a context and without one."""
    from lm_eval.api.instance import Instance
    from lm_eval.api.registry import get_model

    pairs = [("The capital of France is", " Paris."), ("", "Hello there"), ("2 + 2 = ", "4, and 3 + 3 = 6")]
    requests = [Instance("loglikelihood", {}, pair, i) for i, pair in enumerate(pairs)]
    lm = get_model("local-completions")(model=NAME, base_url=f"{server.url}/v1/completions", batch_size=2)
    found = lm.loglikelihood(requests, disable_tqdm=True)
    llm = LLM(resolve(DEFAULT_MODEL), context_len=512)
    special = llm.tokenizer.special
    for (context, following), (value, is_greedy) in zip(pairs, found, strict=True):
        first = [] if context else [special.eos if special.bos is None else special.bos]
        whole = first + llm.tokenizer.encode(context + following, add_special=False)
        num_context = len(first) or len(llm.tokenizer.encode(context.rstrip(), add_special=False))
        score = llm.score(whole, top_k=1)
        assert value == sum(score.token_logprobs[num_context - 1 :])
        likeliest = [top[0][0] for top in score.top[num_context - 1 : -1]]
        assert is_greedy == (likeliest == whole[num_context:])
    server.check_idle()


def test_the_command_knows_the_model(server: Running, tmp_path: Path) -> None:
    arguments = [
        "--model",
        "samebits",
        "--model_args",
        f"model={resolve(DEFAULT_MODEL)},context_len=512",
        "--batch_size",
        "4",
    ]
    told = ["--tasks", "samebits_choice", "--include_path", str(TASK_FOLDER), "--limit", "2"]
    command = [sys.executable, "-m", "samebits.lm_eval", *arguments, *told, "--output_path", str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "samebits_choice" in ended.stdout
    (written,) = tmp_path.rglob("results*.json")
    assert len(json.loads(written.read_text())["config"]["logits_sha256"]) == 64
