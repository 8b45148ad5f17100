"""/v1/rerank, /version and /props: what they say, and which models cannot."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import httpx
import pytest
from live_server import NAME, Running, running

from samebits import LLM, NUMERICS_VERSION, __version__
from samebits.server.limits import Limits
from samebits.server.protocols import rerank
from samebits.server.receipts import ReceiptDesk

TEXTS = ["it rains", "the sky is blue", "hello hi"]


def ask(server: Running, **body: Any) -> httpx.Response:
    with server.client() as client:
        return client.post("/v1/rerank", json={"query": "what is the sky like?", "documents": TEXTS, **body})


@pytest.fixture
def reranker(roomy: Running, monkeypatch: pytest.MonkeyPatch) -> Running:
    """The tiny model under a reranker's name, and with its own letters for verdicts: it has no token for a word."""
    monkeypatch.setattr(roomy.served, "name", "tiny-reranker")
    monkeypatch.setattr(rerank, "VERDICTS", ("y", "n"))
    return roomy


def test_documents_come_by_how_likely_yes_is(reranker: Running, library: LLM) -> None:
    found = ask(reranker).json()["results"]
    assert sorted(row["index"] for row in found) == [0, 1, 2]
    assert [row["relevance_score"] for row in found] == sorted((r["relevance_score"] for r in found), reverse=True)
    assert all(row["document"]["text"] == TEXTS[row["index"]] for row in found)
    row = found[0]
    body = rerank.RerankBody.model_validate({"query": "what is the sky like?", "documents": TEXTS})
    prompt = rerank.prompt_of(reranker.served, body, TEXTS[row["index"]])
    logits = library.score(prompt, logits=True).logits[-1].astype(float)
    yes, no = (logits[library.tokenizer.encode(letter, False, False)[0]] for letter in "yn")
    assert math.isclose(row["relevance_score"], 1 / (1 + math.exp(no - yes)), rel_tol=1e-5)


def test_alone_or_among_others_a_score_has_the_same_bits(reranker: Running) -> None:
    together = {row["index"]: row["relevance_score"] for row in ask(reranker).json()["results"]}
    for index, text in enumerate(TEXTS):
        (alone,) = ask(reranker, documents=[{"text": text}]).json()["results"]
        assert alone["relevance_score"] == together[index]


def test_the_id_of_an_answer_finds_the_receipts_of_both_verdicts(
    model_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rerank, "VERDICTS", ("y", "n"))
    with running(model_path, {"context_len": 2048}, desk=ReceiptDesk(keep_seconds=60)) as server:
        monkeypatch.setattr(server.served, "name", "tiny-reranker")
        answer = ask(server).json()
        with server.client() as client:
            reply = client.get(f"/v1/receipts/{answer['id']}")
            same = client.get(f"/v1/receipts/{answer['id'].removeprefix('rerank-')}")
    assert (reply.status_code, same.text) == (200, reply.text)
    found = [json.loads(line) for line in reply.text.splitlines()]
    verdicts = [server.llm.tokenizer.encode(letter, False, False) for letter in "yn"]
    assert [one["answer"]["token_ids"] for one in found] == [ids for ids in verdicts for _ in TEXTS]


def test_a_deadline_that_has_passed_is_said(model_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No verdict has a token then."""
    monkeypatch.setattr(rerank, "VERDICTS", ("y", "n"))
    with running(model_path, {"context_len": 2048}, limits=Limits(deadline_seconds=1e-9)) as server:
        monkeypatch.setattr(server.served, "name", "tiny-reranker")
        reply = ask(server)
        server.check_idle()
    assert (reply.status_code, reply.json()["error"]["code"]) == (503, "deadline_exceeded")


def test_some_of_the_best_without_their_text(reranker: Running) -> None:
    found = ask(reranker, top_n=2, return_documents=False).json()["results"]
    assert [set(row) for row in found] == [{"index", "relevance_score"}] * 2
    for wrong, param in (
        ({"documents": []}, "documents"),
        ({"documents": ["a"] * 200}, "documents"),
        ({"documents": ["hello " * 5000]}, "documents"),
        ({"top_n": 0}, "top_n"),
        ({"max_tokens_per_doc": 5}, "max_tokens_per_doc"),
        ({"mood": 1}, "mood"),
    ):
        reply = ask(reranker, **wrong)
        assert (reply.status_code, reply.json()["error"]["param"]) == (400, param)


def test_other_models_refuse(server: Running) -> None:
    reply = ask(server)
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "unsupported_model")
    assert "Qwen3-Reranker" in reply.json()["error"]["message"]


def test_version_and_props(server: Running, model_path: Path) -> None:
    with server.client() as client:
        for path in ("/version", "/api/version"):
            assert client.get(path).json() == {"version": __version__, "numerics": NUMERICS_VERSION}
        props = client.get("/props")
    assert props.json()["default_generation_settings"]["n_ctx"] == 512
    assert props.json()["model_alias"] == NAME
    assert props.json()["chat_template"]
    assert str(model_path) not in props.text
