"""What several replicas say of themselves, as one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

SUMS = ("num_running", "num_waiting", "preemptions", "num_steps")
PAGES = ("all", "used", "idle")


def merged_state(states: list[dict[str, Any]]) -> dict[str, object]:
    """What the page draws: all that runs, and the last steps of the replica that has most to do."""
    sums: dict[str, object] = {name: sum(state[name] for state in states) for name in SUMS}
    pages = {name: sum(state["pages"][name] for state in states) for name in PAGES}
    busiest: dict[str, Any] = max(states, key=lambda state: state["num_running"], default={"steps": []})
    running = [sequence for state in states for sequence in state["running"]]
    return {**sums, "running": running, "pages": pages, "steps": busiest["steps"], "num_replicas": len(states)}


class _Known(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        yield from self._families


def merged_metrics(own: bytes, of_replicas: Mapping[str, bytes]) -> bytes:
    """Metrics of this process, then those of every replica with a label that names it."""
    families: dict[str, Metric] = {family.name: family for family in text_string_to_metric_families(own.decode())}
    for replica, text in of_replicas.items():
        for found in text_string_to_metric_families(text.decode()):
            samples = [sample._replace(labels={**sample.labels, "replica": replica}) for sample in found.samples]
            family = families.setdefault(found.name, found)
            family.samples = samples if family is found else [*family.samples, *samples]
    registry = CollectorRegistry()
    registry.register(_Known(families.values()))
    return generate_latest(registry)
