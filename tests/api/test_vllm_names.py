"""The Python API under the names that vLLM's users know, its forms of answers, and its end."""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import samebits
from samebits import LLM, AsyncLLM, BadInput, RequestOutput, SamplingParams
from samebits.api.structured import grammar_of

sys.path.insert(0, str(Path(__file__).parents[1] / "loaders"))
GREEDY = {"max_tokens": 4, "temperature": 0, "seed": 1, "hash_logits": True}
HELLO = [{"role": "user", "content": "hello"}]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from gguf_writer import tiny_model

    return tiny_model().write(tmp_path_factory.mktemp("vllm") / "tiny.gguf")


@pytest.fixture(scope="module")
def llm(file: Path) -> Iterator[LLM]:
    with LLM(file, max_sequences=4, max_model_len=96) as opened:
        yield opened


def test_sampling_params_give_an_object_for_each_prompt(llm: LLM) -> None:
    flat = llm.generate(["hi", [5, 6]], {**GREEDY, "n": 2})
    several = llm.generate(["hi", [5, 6]], sampling_params=SamplingParams(**GREEDY, n=2))
    assert all(isinstance(one, RequestOutput) for one in several)
    assert [answer for one in several for answer in one.outputs] == flat
    assert [one.prompt for one in several] == ["hi", None]
    assert [one.prompt_token_ids for one in several] == [tuple(llm.encode("hi")), (5, 6)]
    assert several[0].outputs[0].text == flat[0].text
    with pytest.raises(BadInput, match="params and sampling_params are both"):
        llm.generate("hi", GREEDY, sampling_params=GREEDY)  # type: ignore[call-overload]


def test_names_of_vllm_mean_ours(llm: LLM, file: Path) -> None:
    assert llm.max_len == 96
    assert llm.get_tokenizer().decode(llm.encode("hi")) == "hi"
    assert SamplingParams(skip_special_tokens=False, include_stop_str_in_output=True) == SamplingParams(
        skip_special=False, include_stop=True
    )
    from samebits.api.requests import one_params

    assert one_params("generate", {"skip_special_tokens": False}).skip_special is False
    with pytest.raises(BadInput, match="skip_special is 3"):
        SamplingParams(skip_special_tokens=3)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="context_len and max_model_len are both"):
        LLM(file, context_len=64, max_model_len=64)


def test_chat_streams_and_takes_several_conversations(llm: LLM) -> None:
    alone = llm.chat(HELLO, GREEDY)
    assert "".join(piece.text for piece in llm.chat(HELLO, GREEDY, stream=True)) == alone.text
    other = [{"role": "user", "content": "bye"}]
    assert llm.chat([HELLO, other], GREEDY) == [alone, llm.chat(other, GREEDY)]
    with pytest.raises(BadInput, match="stream is several conversations"):
        llm.chat([HELLO, other], GREEDY, stream=True)  # type: ignore[call-overload]
    with pytest.raises(BadInput, match="n is 2"):
        llm.chat([HELLO, other], {**GREEDY, "n": 2})


SCHEMA = {"enum": ["left", "right"]}


@pytest.mark.parametrize(
    ("given", "grammar"),
    [
        (None, None),
        ({"type": "text"}, None),
        ({"type": "json_object"}, ("json_schema", '{"type":"object"}')),
        ({"json_object": True}, ("json_schema", '{"type":"object"}')),
        ({"type": "json_schema", "json_schema": {"schema": {"a": 1}}}, ("json_schema", '{"a":1}')),
        ({"type": "json_schema", "schema": {"a": 1}}, ("json_schema", '{"a":1}')),
        ({"json": '{"a": 1}'}, ("json_schema", '{"a": 1}')),
        ({"regex": "a+"}, ("regex", "a+")),
        ({"type": "regex", "pattern": "a+"}, ("regex", "a+")),
        ({"type": "grammar", "grammar": "root ::= x"}, ("grammar", "root ::= x")),
        ({"choice": ["yes", 'n"o']}, ("lark", 'start: "yes" | "n\\"o"')),
    ],
)
def test_response_formats_are_read(given: Any, grammar: tuple[str, str] | None) -> None:
    found = grammar_of("chat", given)
    assert (None if found is None else (found.kind, found.source)) == grammar


@pytest.mark.parametrize(
    "given",
    [
        {},
        [],
        "json",
        {"type": "xml"},
        {"type": ["regex"]},
        {"type": "json_schema"},
        {"type": "regex", "pattern": 3},
        {"regex": 3},
        {"regex": ""},
        {"regex": "a", "json": {}},
        {"choice": []},
        {"choice": [1]},
        {"choice": "yes"},
        {"json": {1, 2}},
        {"json": np.zeros(2)},
        {"regex": "a" * (1 << 19)},
        {"shape": "round"},
    ],
)
def test_what_is_no_response_format_is_refused(given: Any) -> None:
    with pytest.raises(BadInput, match=r"^response_format (is|has) "):
        grammar_of("chat", given)


def test_an_answer_keeps_its_form_and_its_receipt_states_it(llm: LLM) -> None:
    pytest.importorskip("llguidance")
    params = {"max_tokens": 40, "temperature": 0, "seed": 1, "receipt": True}
    answer = llm.chat(HELLO, params, response_format={"type": "json_schema", "json_schema": {"schema": SCHEMA}})
    assert json.loads(answer.text) in ("left", "right")
    assert answer.receipt is not None
    assert answer.receipt.grammar is not None
    assert llm.replay(answer.receipt)[0].is_same
    pieces = llm.stream("hi", params, response_format={"choice": ["left", "right"]})
    assert "".join(piece.text for piece in pieces) in ("left", "right")
    with pytest.raises(BadInput):
        llm.generate("hi", params, response_format={"regex": "("})


def test_a_closed_llm_says_so(file: Path) -> None:
    with LLM(file, backend="reference", numerics="portable", context_len=32) as opened:
        assert repr(opened) == "LLM('tiny.gguf', backend='reference', numerics='portable')"
    opened.close()
    assert repr(opened) == "LLM('tiny.gguf', closed)"
    with pytest.raises(BadInput, match="an LLM that was closed"):
        opened.generate("hi", GREEDY)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        opened.nonsense  # noqa: B018


def test_async_llm_gives_many_tasks_the_same_answers(llm: LLM, file: Path) -> None:
    alone = llm.generate(["hi", "bye"], GREEDY)

    async def ask() -> None:
        async with await asyncio.to_thread(AsyncLLM, file, max_sequences=4, context_len=96) as model:
            assert repr(model).startswith("AsyncLLM('tiny.gguf'")
            answers = await asyncio.gather(*(model.generate(text, GREEDY) for text in ("hi", "bye", "hi")))
            assert [answer for (answer,) in answers] == [*alone, alone[0]]
            assert await model.chat(HELLO, GREEDY) == llm.chat(HELLO, GREEDY)
            assert "".join([piece.text async for piece in model.stream("hi", GREEDY)]) == alone[0].text
            assert (await model.embed("hi")).tobytes() == llm.embed("hi").tobytes()
            assert (await model.score("hi there")).logits_sha256 == llm.score("hi there").logits_sha256
            abandoned = model.stream("hi", {**GREEDY, "max_tokens": 60, "ignore_eos": True})
            await anext(abandoned)
            await abandoned.aclose()
            with pytest.raises(BadInput, match="temperature"):
                await model.generate("hi", {"temperature": -1})
            if sys.platform != "win32":
                chosen = await model.chat(HELLO, GREEDY, response_format={"choice": ["left", "right"]})
                assert chosen.text in ("left", "right")
        await model.close()

    asyncio.run(ask())


def test_what_the_package_exports_is_there() -> None:
    assert all(getattr(samebits, name) is not None for name in samebits.__all__)


def test_prompts_may_come_from_a_generator(llm: LLM) -> None:
    found = llm.generate((text for text in ("hi", "bye")), sampling_params=GREEDY)  # type: ignore[call-overload]
    assert [one.prompt for one in found] == ["hi", "bye"]
    assert [one.outputs[0] for one in found] == llm.generate(["hi", "bye"], GREEDY)


def test_a_refused_grammar_names_the_argument(llm: LLM) -> None:
    pytest.importorskip("llguidance")
    with pytest.raises(BadInput, match=r"^response_format is .*, but must be a grammar that can be compiled$"):
        llm.generate("hi", GREEDY, response_format={"choice": ["\ud800"]})


def test_a_bad_form_of_a_stream_is_refused_before_its_first_piece(llm: LLM) -> None:
    for ask in (llm.stream, lambda *a, **k: llm.chat(*a, stream=True, **k)):
        with pytest.raises(BadInput, match=r"^response_format (is|has) "):
            ask("hi", GREEDY, response_format={"type": "xml"})


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_a_stream_outlives_its_closed_llm_without_a_complaint(file: Path) -> None:
    several = []
    with LLM(file, max_sequences=4, context_len=96) as opened:
        for _ in range(3):
            several.append(opened.stream("hi", {**GREEDY, "max_tokens": 60, "ignore_eos": True}))
            next(several[-1])
    assert [piece.finish_reason for piece in several[0]][-1] == "cancelled"
    several.pop(1).close()  # type: ignore[attr-defined]
    del several
    gc.collect()


def test_a_closed_async_llm_frees_its_model_and_says_that_it_is_closed(file: Path) -> None:
    async def ask() -> None:
        model = AsyncLLM(file, max_sequences=4, context_len=96)
        engine = weakref.ref(model._llm.engine)
        running = model.stream("hi", {**GREEDY, "max_tokens": 60, "ignore_eos": True})
        await anext(running)
        await asyncio.gather(model.close(), model.close())
        assert [piece.finish_reason async for piece in running][-1] in ("cancelled", "length")
        del running
        gc.collect()
        assert engine() is None
        calls: list[Any] = [model.generate("hi"), model.chat("hi"), model.score("hi"), model.embed("hi")]
        calls += [anext(model.stream("hi")), model.generate("hi", response_format={"regex": "a"})]
        for call in calls:
            with pytest.raises(BadInput, match="an LLM that was closed"):
                await call
        assert repr(model) == "AsyncLLM('tiny.gguf', closed)"

    asyncio.run(ask())


@pytest.mark.skipif(sys.platform == "win32", reason="grammars need fork")
@pytest.mark.parametrize("delay_seconds", [0.0, 0.05])
def test_a_task_cancelled_while_its_grammar_compiles_leaves_nothing(file: Path, delay_seconds: float) -> None:
    pytest.importorskip("llguidance")
    started = []

    async def ask() -> None:
        async with AsyncLLM(file, max_sequences=4, context_len=96) as model:
            task = asyncio.create_task(model.generate("hi", GREEDY, response_format={"regex": "a*"}))
            await asyncio.sleep(delay_seconds)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert model._llm.engine.is_idle

    with pytest.MonkeyPatch.context() as patch:
        popen = subprocess.Popen
        patch.setattr(subprocess, "Popen", lambda *a, **k: started.append(popen(*a, **k)) or started[-1])
        asyncio.run(ask())  # waits for the threads that compile
    assert all(process.poll() is not None for process in started)
