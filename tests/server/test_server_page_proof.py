"""The page's proof in a real browser: it holds on a real server, and says loudly where one breaks its promise."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from browsers import opened, posted, real_browser
from live_server import Running, running

from samebits import LLM, SamplingParams
from samebits.receipts.record import from_json

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
HASHES = ("a" * 64, "b" * 64)
STEP_SECONDS = 0.01  # about what a small model takes: the others run until a slow browser comes back
NUM_TOKENS = 24


@pytest.fixture(scope="module")
def roomy(model_path: Path) -> Iterator[Running]:
    """A server whose pool holds 32 sequences at once, each as long as the page asks for: it must keep up with them."""
    with running(model_path, {"num_pages": 1200}) as it:
        plan = it.llm.engine.scheduler.plan

        def paced(*given: Any) -> Any:
            time.sleep(STEP_SECONDS)
            return plan(*given)

        it.llm.engine.scheduler.plan = paced  # type: ignore[method-assign]
        yield it


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with real_browser() as it:
        yield it


@contextmanager
def proof_page(browser: Any, server: Running) -> Iterator[Any]:
    """The view of the proof; the server is idle again afterwards."""
    with opened(browser, server.url, "/#prove") as it:
        it.get_by_label("Max tokens").locator("visible=true").fill(str(NUM_TOKENS))
        yield it
    server.check_idle()


@pytest.fixture
def page(browser: Any, roomy: Running) -> Iterator[Any]:
    with proof_page(browser, roomy) as it:
        yield it


@dataclass(frozen=True)
class Proven:
    """A proof on a real server, what the page says of it, and the bodies of the other requests."""

    page: Any
    verdict: str
    bodies: list[dict[str, Any]]


@pytest.fixture(scope="module")
def proven(browser: Any, roomy: Running) -> Iterator[Proven]:
    with proof_page(browser, roomy) as it:
        bodies = posted(it, COMPLETIONS)
        yield Proven(it, prove(it), bodies)


def prove(page: Any) -> str:
    """Presses the button; the verdict."""
    page.get_by_role("button", name="Prove it").click()
    page.locator("#verdict strong").wait_for()
    page.locator("#proof-start:enabled").wait_for()
    return page.locator("#verdict").text_content()


def record_of(page: Any) -> dict[str, Any]:
    with page.expect_download() as download:
        page.get_by_role("button", name="Download the record of this proof").click()
    assert download.value.suggested_filename == "samebits-proof.json"
    return json.loads(Path(download.value.path()).read_text())


def plant(page: Any, answers: list[tuple[str, str | None]]) -> None:
    """The server's answers to the request that is proven, in order: a text and a hash."""
    left = iter(answers)

    def answer(route: Any) -> None:
        text, digest = next(left)
        last = {"delta": {}, "finish_reason": "stop", **({"logits_sha256": digest} if digest else {})}
        choices = [{"delta": {"content": text}, "token_ids": [len(text)], "finish_reason": None}, last]
        lines = [f"data: {json.dumps({'choices': [choice]})}\n\n" for choice in choices]
        route.fulfill(body="".join([*lines, "data: [DONE]\n\n"]), content_type="text/event-stream")

    page.route(f"**{CHAT}", answer)


def test_the_proof_holds_on_a_real_server(proven: Proven, roomy: Running, model_path: Path) -> None:
    page, verdict, bodies = proven.page, proven.verdict, proven.bodies
    record = record_of(page)
    alone, among, request = record["alone"], record["among"], record["request"]
    assert verdict == f"Same bits. Every logit of {len(alone['token_ids'])} tokens, alone and in a batch of 32."
    assert page.locator(".pair .hash").all_text_contents() == [alone["logits_sha256"]] * 2
    assert (alone["largest_batch"], among["largest_batch"]) == (1, 32)
    prompts = [prompt for body in bodies for prompt in body["prompt"]]
    assert (len(prompts), len(set(prompts))) == (31, 31)
    assert [{k: v for k, v in b.items() if k != "stream"} for b in bodies] == record["neighbours"]
    assert (record["model"], record["tier"], record["verdict"]) == ("tiny", "portable", "same")
    assert record["fingerprint"] == roomy.served.fingerprint
    params = SamplingParams(max_tokens=NUM_TOKENS, temperature=0.8, seed=7, hash_logits=True)
    llm = LLM(model_path, context_len=512)
    own = llm.chat(request["messages"], params)
    with page.expect_download() as download:
        page.get_by_role("button", name="Download the receipt").click()
    receipt = from_json(Path(download.value.path()).read_bytes())
    assert all(from_json(json.dumps(run["receipt"]).encode()) == receipt for run in (alone, among))
    assert llm.replay(receipt)[0].is_same
    for run in (alone, among):
        assert (run["text"], tuple(run["token_ids"]), run["logits_sha256"]) == (
            own.text,
            own.token_ids,
            own.logits_sha256,
        )


def test_the_commands_shown_do_the_same(proven: Proven) -> None:
    page = proven.page
    page.get_by_text("The same with curl").click()
    script = page.locator("#curl code").text_content()
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60, check=True)
    first, second = re.findall(r'^"logits_sha256": *"([0-9a-f]{64})"$', done.stdout, re.MULTILINE)
    assert first == second == page.locator("#alone .hash").text_content()


def test_a_proof_can_be_stopped(page: Any) -> None:
    page.get_by_label("Max tokens").locator("visible=true").fill("400")
    page.get_by_role("button", name="Prove it").click()
    page.locator("#proof-stop").click()
    page.locator("#verdict strong").wait_for()
    assert page.locator("#verdict").text_content() == "Nothing proven. It was stopped."


def test_a_first_run_that_was_not_alone_proves_nothing(page: Any) -> None:
    crowd = "Someone else used the server: the first run was not alone."
    runs = [{"logits_sha256": "a", "token_ids": [1], "text": "x", "largest_batch": n} for n in (2, 32)]
    script = "runs => import('./page/proof.js').then(proof => proof.verdictOf(...runs))"
    assert page.evaluate(script, runs) == {"verdict": "nothing proven", "why": crowd}


def test_a_broken_promise_is_said_loudly(page: Any) -> None:
    plant(page, [("the sky", HASHES[0]), ("the sky", HASHES[1])])
    verdict = prove(page)
    assert verdict == "NOT the same bits. This server broke its promise. What differs: the logits' hashes."
    assert page.locator("#verdict").get_attribute("class") == "different"
    assert page.locator("#verdict").get_attribute("role") == "alert"
    assert page.locator(".pair .hash").all_text_contents() == list(HASHES)
    assert record_of(page)["verdict"] == "different"


def test_other_tokens_under_the_same_hash_are_a_broken_promise(page: Any) -> None:
    plant(page, [("the sky", HASHES[0]), ("the skies", HASHES[0])])
    assert prove(page).endswith("What differs: the tokens, the texts.")


def test_without_a_hash_nothing_is_proven(page: Any) -> None:
    plant(page, [("the sky", None), ("the sky", None)])
    assert prove(page).startswith("Nothing proven. The server sent no hash")


def test_without_neighbours_nothing_is_proven(page: Any) -> None:
    error = json.dumps({"error": {"message": "the server is busy", "code": "overloaded"}})
    page.route(f"**{COMPLETIONS}", lambda route: route.fulfill(status=503, body=error))
    plant(page, [("the sky", HASHES[0]), ("the sky", HASHES[0])])
    assert prove(page).startswith("Nothing proven. The server says: the other requests are refused: the server is busy")
