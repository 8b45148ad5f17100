"""Requests that replicas answer: the same answers as an engine's own, also when replicas die under them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from relayed import Turns, plain, relayed

from samebits.core.errors import BadInput
from samebits.engine.answer import Completion
from samebits.engine.async_engine import QueueFull
from samebits.engine.job import DeadlinePassed, RequestFailed
from samebits.engine.request_options import RequestOptions
from samebits.engine.sampling import SamplingParams
from samebits.receipts.record import Grammar
from samebits.server.limits import Limits
from samebits.server.relay import stream as relay_stream
from samebits.server.relay.engine import RelayEngine
from samebits.server.relay.stream import RelayStream

PROMPT = [int(i * i + 3) % 250 for i in range(40)]
PLAIN = SamplingParams(max_tokens=60, temperature=0.9, seed=4, ignore_eos=True, hash_logits=True)
LONG = replace(PLAIN, max_tokens=400)
WISHES: dict[str, dict[str, Any]] = {
    "hash": {},
    "greedy": {"temperature": 0.0},
    "samples": {"n": 3},
    "penalties": {"repetition_penalty": 1.3, "presence_penalty": 0.5, "frequency_penalty": 0.2},
    "logprobs": {"logprobs": 3, "prompt_logprobs": 2},
    "stop": {"stop": ("a", "e"), "min_tokens": 20},
    "bans": {"bad_words": ("o",), "logit_bias": {7: 3.0}, "min_tokens": 10},
    "receipt": {"receipt": True},
}
NUMBERS = Grammar("regex", "[0-9]{50}")


def play(path: Path, scene: Callable[[RelayEngine, Turns], Coroutine[Any, Any, None]], **options: Any) -> None:
    async def main() -> None:
        async with relayed(path, **options) as (engine, turns):
            await scene(engine, turns)

    asyncio.run(main())


async def lost_at(
    engine: RelayEngine, turns: Turns, counts: list[int], params: SamplingParams, **options: Any
) -> list[Completion]:
    """Answers whose replica is lost whenever one of these numbers of pieces has come."""
    stream = await engine.generate(PROMPT, params, RequestOptions(**options))
    num_pieces, left = 0, list(counts)
    async for _ in turns.read(stream):
        num_pieces += 1
        if left and num_pieces >= left[0]:
            left.pop(0)
            at = (len(turns.asks) - 1) % len(turns.replicas)
            for i in range(len(turns.replicas)):  # all samples may be with either
                if i == at or params.n > 1:
                    turns.replicas[i].lose()
                    turns.replicas[i].recover()
    assert not left, "the answer ended before its replica was lost"
    return stream.job.completions()


async def each(turns: Turns, stream: RelayStream, act: Callable[[], None]) -> None:
    """Reads an answer to its end and acts at every piece."""
    async for _ in turns.read(stream):
        act()


@pytest.mark.parametrize("wish", WISHES)
def test_every_wish_outlives_replicas(model_path: Path, wish: str) -> None:
    params = replace(PLAIN, **WISHES[wish])

    async def scene(engine: RelayEngine, turns: Turns) -> None:
        want = await plain(turns, PROMPT, params)
        assert await lost_at(engine, turns, [], params) == want
        assert engine.num_resumed == 0
        assert await lost_at(engine, turns, [1, 13, 21], params) == want
        assert engine.num_resumed >= 3

    play(model_path, scene)


def test_a_format_outlives_replicas(model_path: Path) -> None:
    async def scene(engine: RelayEngine, turns: Turns) -> None:
        (undisturbed,) = await lost_at(engine, turns, [], PLAIN, grammar=NUMBERS)
        assert undisturbed.text.isdecimal()
        assert await lost_at(engine, turns, [5, 30], PLAIN, grammar=NUMBERS) == [undisturbed]

    play(model_path, scene)


def test_pieces_come_once_each(model_path: Path) -> None:
    async def scene(engine: RelayEngine, turns: Turns) -> None:
        (want,) = await plain(turns, PROMPT, PLAIN)
        stream = await engine.generate(PROMPT, PLAIN)
        tokens = []
        async for _, piece in turns.read(stream):
            tokens.append(piece.token_id)
            if len(tokens) == 20:
                for replica in turns.replicas:
                    replica.lose()
                turns.replicas[0].recover()  # half of the asks meet one that stays dead
        assert tuple(tokens) == want.token_ids

    play(model_path, scene)


def test_an_answer_never_goes_on_with_other_bits(model_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The only other replica is of another edition: the answer ends with the reason, and new ones are answered."""
    monkeypatch.setattr(relay_stream, "EDITION_SECONDS", 0.3)

    async def scene(engine: RelayEngine, turns: Turns) -> None:
        stream = await engine.generate(PROMPT, LONG)
        with pytest.raises(RequestFailed, match="an answer of a of plan cannot come from b of plan"):
            await each(turns, stream, turns.replicas[0].lose)
        assert stream.job.num_answer_tokens < 400
        fresh = await engine.generate(PROMPT, PLAIN)
        assert (await anext(aiter(fresh)))[0] == 0
        assert fresh.edition == "b"

    play(model_path, scene, editions=("a", "b"))


def test_tokens_that_a_replica_does_not_draw_again_end_the_answer(model_path: Path) -> None:
    """A replica that claims an edition whose bits it does not have."""

    async def scene(engine: RelayEngine, turns: Turns) -> None:
        stream = await engine.generate(PROMPT, LONG)
        spoiled: list[bool] = []

        def spoil() -> None:
            if not spoiled and stream.job.num_answer_tokens >= 10:
                spoiled.append(True)
                known = stream.job.pieces[0]
                known[3] = replace(known[3], token_id=known[3].token_id ^ 1)  # type: ignore[operator]
                for replica in turns.replicas:
                    replica.lose()
                    replica.recover()

        with pytest.raises(RequestFailed, match="its tokens are not drawn again there"):
            await each(turns, stream, spoil)

    play(model_path, scene)


def test_at_fast_numerics_no_other_goes_on(model_path: Path) -> None:
    async def scene(engine: RelayEngine, turns: Turns) -> None:
        engine._resumes = False
        stream = await engine.generate(PROMPT, LONG)
        with pytest.raises(RequestFailed, match="at fast numerics no other replica could go on"):
            await each(turns, stream, turns.replicas[0].lose)

    play(model_path, scene)


def test_replicas_that_are_all_dead_are_not_asked_for_ever(model_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay_stream, "ABSENT_SECONDS", 0.2)

    async def scene(engine: RelayEngine, turns: Turns) -> None:
        for replica in turns.replicas:
            replica.lose()
        with pytest.raises(RequestFailed, match=r"no replica took the request for 0\.2 seconds: it is gone"):
            await engine.generate(PROMPT, PLAIN)

    play(model_path, scene)


def test_a_request_that_kills_replicas_is_not_asked_for_ever(model_path: Path) -> None:
    async def scene(engine: RelayEngine, turns: Turns) -> None:
        turns.hold()
        stream = await engine.generate(PROMPT, PLAIN)

        async def kill() -> None:
            while True:
                if any(receiver.line is not None for receiver in engine._board._receivers.values()):
                    for replica in turns.replicas:
                        replica.lose()
                        replica.recover()
                await asyncio.sleep(0)

        killing = asyncio.create_task(kill())
        with pytest.raises(RequestFailed, match="8 replicas were lost without a token: its connection has ended"):
            await each(turns, stream, lambda: None)
        killing.cancel()

    play(model_path, scene)


def test_refusals_are_the_engine_s_own(model_path: Path) -> None:
    async def scene(engine: RelayEngine, turns: Turns) -> None:
        for prompt, params in (([10**6], PLAIN), ([], PLAIN), (PROMPT, replace(PLAIN, logit_bias={10**6: 1.0}))):
            with pytest.raises(BadInput) as theirs:
                await plain(turns, prompt, params)
            with pytest.raises(BadInput) as ours:
                await engine.generate(prompt, params)
            assert (str(ours.value), ours.value.argument) == (str(theirs.value), theirs.value.argument)

    play(model_path, scene)


def test_a_full_queue_refuses(model_path: Path) -> None:
    async def scene(engine: RelayEngine, turns: Turns) -> None:
        asked = await asyncio.gather(*(engine.generate(PROMPT, LONG) for _ in range(16)), return_exceptions=True)
        refused = [error for error in asked if isinstance(error, QueueFull)]
        assert 0 < len(refused) < 16
        assert str(refused[0]) == "1 requests wait already"
        for stream in asked:
            if isinstance(stream, RelayStream):
                stream.close()

    play(model_path, scene, limits=Limits(max_waiting=1), max_sequences=1)


def test_who_leaves_frees_the_replica(model_path: Path) -> None:
    async def scene(engine: RelayEngine, turns: Turns) -> None:
        stream = await engine.generate(PROMPT, LONG)
        async for _ in stream:
            break
        stream.close()
        engines = [replica.served.own.engine for replica in turns.replicas]
        async with asyncio.timeout(60):
            while not all(e.is_idle for e in engines) or any(r.answerer._under_way for r in turns.replicas):
                turns.go_on()
                await asyncio.sleep(0.01)

    play(model_path, scene)


def test_a_deadline_holds_with_and_without_replicas(model_path: Path) -> None:
    async def scene(engine: RelayEngine, turns: Turns) -> None:
        stream = await engine.generate(PROMPT, LONG, RequestOptions(deadline=engine.clock() + 0.1))
        await each(turns, stream, lambda: None)
        assert stream.job.completions()[0].finish_reason == "deadline"
        stream = await engine.generate(PROMPT, LONG, RequestOptions(deadline=engine.clock() + 0.5))
        async for _ in turns.read(stream):
            for replica in turns.replicas:
                replica.lose()
        (answer,) = stream.job.completions()
        assert answer.finish_reason == "deadline"
        assert 0 < len(answer.token_ids) < 400

    play(model_path, scene)


def test_many_streams_while_replicas_die_in_turn(model_path: Path) -> None:
    async def scene(engine: RelayEngine, turns: Turns) -> None:
        wishes = [replace(PLAIN, seed=seed, max_tokens=60) for seed in range(12)]
        want = [await plain(turns, PROMPT, wish) for wish in wishes]

        num_pieces = 0

        def kill() -> None:
            nonlocal num_pieces
            num_pieces += 1
            if num_pieces % 150 == 0:
                replica = turns.replicas[num_pieces // 150 % 2]
                replica.lose()
                replica.recover()

        async def one(wish: SamplingParams) -> list[Completion]:
            stream = await engine.generate(PROMPT, wish)
            await each(turns, stream, kill)
            return stream.job.completions()

        assert await asyncio.gather(*map(one, wishes)) == want
        assert num_pieces == 12 * 60
        assert engine.num_resumed > 0

    play(model_path, scene)


def test_an_embedding_ends_at_its_deadline(model_path: Path) -> None:
    async def scene(engine: RelayEngine, turns: Turns) -> None:
        with pytest.raises(DeadlinePassed):
            await engine.embed(PROMPT, "mean", deadline=engine.clock())

    play(model_path, scene)


def test_embeddings_come_through(model_path: Path) -> None:
    async def scene(engine: RelayEngine, turns: Turns) -> None:
        want = await turns.replicas[0].served.engine.embed(PROMPT, "mean")
        assert (await engine.embed(PROMPT, "mean")).tobytes() == want.tobytes()

    play(model_path, scene)
