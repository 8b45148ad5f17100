"""The async front: streams, cancellation, faults and the end of the engine, from real event loops."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from scenes import PARAMS, Lab, prompt_of

from samebits import SamplingParams
from samebits.core.errors import BadInput
from samebits.engine.async_engine import AsyncEngine
from samebits.engine.job import RequestFailed
from samebits.engine.request_options import RequestOptions

LONG = SamplingParams(max_tokens=200, temperature=0, ignore_eos=True, seed=0)


def served(lab: Lab, scenario: Callable[[AsyncEngine], Awaitable[Any]], **options: Any) -> Any:
    """Runs a scenario against a fresh engine on its thread; afterwards no page is held."""

    async def run() -> Any:
        engine = AsyncEngine(lab.engine(**options))
        try:
            result = await asyncio.wait_for(scenario(engine), 60)
            await engine.drain()
            return result
        finally:
            engine.close()
            assert engine.engine.scheduler.pages.num_used == 0
            engine.engine.scheduler.check_integrity()

    return asyncio.run(run())


async def answers(engine: AsyncEngine, name: str, **options: Any) -> list[Any]:
    stream = await engine.generate(
        prompt_of(name, engine.engine.runner.vocab_size), PARAMS[name], RequestOptions(**options)
    )
    return await stream.completions()


def test_streams_side_by_side_get_the_bits_they_get_alone(lab: Lab) -> None:
    async def scenario(engine: AsyncEngine) -> list[Any]:
        return await asyncio.gather(*(answers(engine, name) for name in [*PARAMS] * 4))

    assert served(lab, scenario) == [lab.alone[name] for name in PARAMS] * 4


def test_pieces_come_in_order_and_make_the_text(lab: Lab) -> None:
    async def scenario(engine: AsyncEngine) -> dict[int, str]:
        stream = await engine.generate(prompt_of("two samples", 200), PARAMS["two samples"])
        texts = {0: "", 1: ""}
        async for sample, piece in stream:
            texts[sample] += piece.text
        assert [texts[a.sample_index] for a in stream.job.answers] == [a.completion().text for a in stream.job.answers]
        return texts

    assert all(served(lab, scenario).values())


def test_leaving_a_stream_cancels_it(lab: Lab) -> None:
    async def scenario(engine: AsyncEngine) -> tuple[int, Any]:
        other = asyncio.create_task(answers(engine, "greedy"))
        stream = await engine.generate([5] * 30, LONG)
        count = 0
        async for _ in stream:
            count += 1
            if count == 3:
                break
        return len(stream.job.answers[0].token_ids), await other

    count, other = served(lab, scenario)
    assert 3 <= count < 200
    assert other == lab.alone["greedy"]


def test_a_cancelled_task_frees_its_pages(lab: Lab) -> None:
    async def scenario(engine: AsyncEngine) -> None:
        stream = await engine.generate([5] * 30, LONG)
        task = asyncio.create_task(stream.completions())
        await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    served(lab, scenario)


def test_mistakes_reach_their_caller_only(lab: Lab) -> None:
    async def scenario(engine: AsyncEngine) -> Any:
        other = asyncio.create_task(answers(engine, "shaped"))
        with pytest.raises(BadInput, match="no tokens"):
            await engine.generate([], LONG)
        return await other

    assert served(lab, scenario) == lab.alone["shaped"]


def test_scores_beside_streams(lab: Lab) -> None:
    async def scenario(engine: AsyncEngine) -> Any:
        tokens = prompt_of("shaped", 200)
        return await asyncio.gather(engine.score(tokens), answers(engine, "greedy"), engine.score(tokens))

    first, answer, second = served(lab, scenario)
    assert first == second
    assert answer == lab.alone["greedy"]


def test_a_dead_engine_says_why(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        engine = AsyncEngine(lab.engine())
        stream = await engine.generate([5] * 30, LONG)
        for method in ("plan", "start_anew"):  # a fault, and no way to recover from it
            monkeypatch.setattr(engine.engine.scheduler, method, lambda *_: 1 / 0)
        with pytest.raises(RequestFailed, match="ZeroDivisionError"):
            await stream.completions()
        with pytest.raises(RequestFailed, match="the engine stopped: ZeroDivisionError"):
            await engine.generate([5], LONG)
        assert not engine.is_alive
        engine.close()

    asyncio.run(scenario())


def test_an_engine_outlives_a_fault_in_its_planning(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        engine = AsyncEngine(lab.engine())
        with monkeypatch.context() as patch:
            patch.setattr(engine.engine.scheduler, "plan", lambda *_: 1 / 0)
            stream = await engine.generate([5] * 30, LONG)
            with pytest.raises(RequestFailed, match="ZeroDivisionError"):
                await stream.completions()
        later = await engine.generate(prompt_of("greedy", lab.runner.vocab_size), PARAMS["greedy"])
        assert await later.completions() == lab.alone["greedy"]
        engine.close()

    asyncio.run(scenario())


def test_closing_ends_what_runs(lab: Lab) -> None:
    async def scenario() -> None:
        engine = AsyncEngine(lab.engine())
        stream = await engine.generate([5] * 30, LONG)
        await asyncio.to_thread(engine.close)
        (answer,) = await stream.completions()
        assert answer.finish_reason == "cancelled"

    asyncio.run(scenario())
