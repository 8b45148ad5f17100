"""However a job ends, the engine lets go of it at once, long before its deadline."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scenes import PARAMS, Lab, prompt_of, start

from samebits import SamplingParams
from samebits.engine.async_engine import AsyncEngine
from samebits.engine.engine import Engine
from samebits.engine.job import Job, RequestFailed
from samebits.engine.request_options import RequestOptions
from samebits.scheduler import Policy

LONG = SamplingParams(max_tokens=300, temperature=0, seed=0, ignore_eos=True)
FAR = 1e9


class BrokenMask:
    def allowed(self) -> np.ndarray:
        raise ValueError("a mask that breaks")

    def accept(self, token: int) -> None: ...


def generate(engine: Engine, params: SamplingParams = LONG, **options: Any) -> Job:
    return engine.generate([5, 6, 7], params, RequestOptions(**{"deadline": FAR, **options}))


def run(engine: Engine, job: Job) -> None:
    """Steps until the job has ended; the engine goes on with what else it has."""
    while not job.is_done:
        engine.step()


def cancel_after(num_steps: int) -> Callable[[Engine, Job], None]:
    def end(engine: Engine, job: Job) -> None:
        for _ in range(num_steps):
            engine.step()
        engine.cancel(job)

    return end


def stop_text(lab: Lab) -> SamplingParams:
    text = lab.alone["greedy"][0].text
    return replace(PARAMS["greedy"], stop=(text[len(text) // 2 :][:2],))


ENDS: dict[str, tuple[Callable[[Lab, Engine], Job], Callable[[Engine, Job], None]]] = {
    "length": (lambda lab, e: generate(e, replace(LONG, max_tokens=3)), run),
    "samples": (lambda lab, e: generate(e, PARAMS["seven samples"]), run),
    "stop": (
        lambda lab, e: e.generate(
            prompt_of("greedy", lab.runner.vocab_size), stop_text(lab), RequestOptions(deadline=FAR)
        ),
        run,
    ),
    "cancelled while it waits": (lambda lab, e: generate(e), cancel_after(0)),
    "cancelled while it runs": (lambda lab, e: generate(e, replace(LONG, n=3)), cancel_after(4)),
    "deadline": (lambda lab, e: generate(e, deadline=e.clock()), run),
    "failed": (lambda lab, e: generate(e, make_mask=BrokenMask), run),
    "score": (lambda lab, e: e.score([5] * 90, top_k=2), run),
    "embedding": (lambda lab, e: e.embed([5] * 90), run),
    "score cancelled": (lambda lab, e: e.score([5] * 90), cancel_after(2)),
    "embedding cancelled": (lambda lab, e: e.embed([5] * 90), cancel_after(0)),
}


@pytest.mark.parametrize("way", ENDS)
@pytest.mark.parametrize("is_busy", [False, True])
def test_an_ended_job_is_released(lab: Lab, way: str, is_busy: bool) -> None:
    engine = lab.engine(policy=Policy(32))
    neighbour = generate(engine) if is_busy else None
    engine.step()
    begin, end = ENDS[way]
    job = begin(lab, engine)
    seen = [weakref.ref(job), *(weakref.ref(s.request) for s in job.sequences)]
    end(engine, job)
    assert job.is_done
    del job
    gc.collect()
    assert [ref() for ref in seen] == [None] * len(seen)
    if neighbour is not None:
        assert not neighbour.is_done
        engine.cancel(neighbour)


def test_a_failed_step_keeps_no_job(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = lab.engine()
    jobs = [start(engine, name) for name in lab.alone]
    seen = [weakref.ref(job) for job in jobs]
    monkeypatch.setattr(lab.runner, "run", lambda plan: 1 / 0)
    while not engine.is_idle:
        engine.step()
    assert all(job.error == "ZeroDivisionError: division by zero" for job in jobs)
    jobs.clear()
    gc.collect()
    assert [ref() for ref in seen] == [None] * len(seen)


def test_cancelled_ones_behind_a_long_wait_do_not_pile_up(lab: Lab) -> None:
    engine = lab.engine(num_pages=9)
    first, waiting = engine.generate([5] * 60, LONG), engine.generate([6] * 60, LONG)
    engine.step()
    seen = []
    for _ in range(40):
        job = generate(engine, priority=1)
        seen.append(weakref.ref(job.sequences[0].request))
        engine.cancel(job)
        del job
    gc.collect()
    assert sum(ref() is not None for ref in seen) <= engine.scheduler.num_waiting == 1
    engine.cancel(first)
    engine.cancel(waiting)


async def ask(engine: AsyncEngine, way: str) -> None:
    """A call that ends in some way, and leaves nothing behind with its caller."""
    if way == "score":
        await engine.score([5] * 40, top_k=1)
    elif way == "embed":
        await engine.embed([5] * 40, "mean")
    elif way == "failed":
        with pytest.raises(RequestFailed, match="a mask that breaks"):
            await (await engine.generate([5], LONG, RequestOptions(deadline=FAR, make_mask=BrokenMask))).completions()
    elif way == "finished":
        await (await engine.generate([5], PARAMS["seven samples"], RequestOptions(deadline=FAR))).completions()
    else:
        stream = await engine.generate([5] * 30, LONG, RequestOptions(deadline=FAR))
        async for _ in stream:
            break


@pytest.mark.parametrize("way", ["score", "embed", "failed", "finished", "left"])
def test_an_async_engine_releases_what_has_ended(lab: Lab, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[weakref.ref[Job]] = []
    add = Engine._add

    def noted(engine: Engine, job: Job, request: Any) -> Job:
        seen.append(weakref.ref(job))
        return add(engine, job, request)

    monkeypatch.setattr(Engine, "_add", noted)

    async def scenario() -> None:
        engine = AsyncEngine(lab.engine())
        try:
            for _ in range(3):
                await ask(engine, way)
            await engine.drain()
            await engine.look(lambda _: None)  # the steps before are wholly over
            gc.collect()
            assert [ref() for ref in seen] == [None] * 3
        finally:
            engine.close()

    asyncio.run(scenario())
