"""What the tests of this folder ask of a server of replicas."""

from __future__ import annotations

import time
from dataclasses import dataclass

import httpx
from live_server import plain_client
from prometheus_client.parser import text_string_to_metric_families
from replica_processes import replica_processes

HEALTHY_SECONDS = 1200  # seconds where nothing else runs, minutes where the cores are given to other machines
RESUMED = "samebits_resumed_answers_total"


@dataclass
class Cluster:
    """The server of replicas: `samebits serve`, in a process of its own."""

    url: str
    process: int

    @property
    def num_resumed(self) -> int:
        """Answers that went on with another replica."""
        with self.client() as client:
            families = list(text_string_to_metric_families(client.get("/metrics").text))
        own = [s for f in families for s in f.samples if s.name == RESUMED and "replica" not in s.labels]
        return int(own[0].value)

    def client(self) -> httpx.Client:
        return plain_client(base_url=self.url, timeout=120)

    def replicas(self) -> list[int]:
        """Their processes, the oldest first."""
        return replica_processes(self.process)

    def state(self) -> dict[str, object]:
        with self.client() as client:
            return dict(client.get("/state").json())

    def wait_for(self, num_replicas: int) -> None:
        """Until so many replicas say how they are."""
        deadline = time.monotonic() + HEALTHY_SECONDS
        while self.state()["num_replicas"] != num_replicas:
            assert time.monotonic() < deadline, f"there are no {num_replicas} replicas"
            time.sleep(0.1)
