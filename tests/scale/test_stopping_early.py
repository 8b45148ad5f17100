"""A server that is told to stop while Ray still starts its replicas."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray", reason="needs pip install 'samebits[ray]'")

from live_server import free_port

from samebits.server.limits import Limits
from samebits.server.relay.model import RelayedModel
from samebits.server.run import http_server

pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own, when it is imported
STOP_SECONDS = 20  # on a machine that has other work


def test_a_server_does_not_wait_for_replicas_that_are_still_started(model_path: Path) -> None:
    from samebits.scale.replicas import RayReplicas

    is_starting, is_over, closed = threading.Event(), threading.Event(), list[bool]()

    def start() -> Any:
        is_starting.set()
        is_over.wait(120)
        raise RuntimeError("the cluster has ended")

    served = RelayedModel("tiny", Limits(), False)
    replicas = RayReplicas(start, lambda: closed.append(True))
    server = http_server(served, lambda _: served.join(replicas, {"model": str(model_path)}), port=free_port())
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        assert is_starting.wait(60)
        server.should_exit = True
        thread.join(STOP_SECONDS)
        assert not thread.is_alive()
        assert closed == [True]
    finally:
        is_over.set()
