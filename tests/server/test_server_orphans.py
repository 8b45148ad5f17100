"""No request leaves work behind, however it ends: its jobs, pages, masks and tasks end with it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from live_server import Running, running

from samebits.engine.job import Job
from samebits.server.limits import Limits

EMBED = "/v1/embeddings"
IDS = [5] * 300


@pytest.fixture(scope="module")
def narrow(model_path: Path) -> Iterator[Running]:
    """A server that computes one sequence at a time and lets four requests wait."""
    with running(model_path, {"max_sequences": 1}, limits=Limits(max_waiting=4)) as it:
        yield it


@contextlib.contextmanager
def recorded_jobs(server: Running, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Job]]:
    """Yield a list that gains every job the engine accepts from here on."""
    engine, jobs = server.llm.engine, list[Job]()
    add = engine._add

    def record(job: Any, request: Any) -> Any:
        jobs.append(job)
        return add(job, request)

    with monkeypatch.context() as patch:
        patch.setattr(engine, "_add", record)
        yield jobs


def test_a_wrong_id_is_refused_before_any_text_is_embedded(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong in ([1 << 30], [5] * 4000):
        with recorded_jobs(server, monkeypatch) as jobs, server.client() as client:
            reply = client.post(EMBED, json={"input": [*[IDS] * 20, wrong, *[IDS] * 20]})
        assert reply.status_code == 400
        assert reply.json()["error"]["param"] == "input"
        assert not jobs


def test_a_full_queue_ends_the_texts_that_were_started(narrow: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    with recorded_jobs(narrow, monkeypatch) as jobs, narrow.client() as client:
        reply = client.post(EMBED, json={"input": [IDS] * 40})
    assert reply.status_code == 503
    narrow.check_idle()
    assert jobs
    assert any(job._cut_reason == "cancelled" for job in jobs)  # type: ignore[attr-defined]


def test_a_text_is_not_embedded_beyond_the_deadline(model_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(model_path, limits=Limits(deadline_seconds=1e-6)) as server:
        with recorded_jobs(server, monkeypatch) as jobs, server.client() as client:
            reply = client.post(EMBED, json={"input": [IDS] * 3})
        assert reply.status_code == 503
        assert reply.json()["error"]["code"] == "deadline_exceeded"
        server.check_idle()
        assert all(job._cut_reason for job in jobs)  # type: ignore[attr-defined]
