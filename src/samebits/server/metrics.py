"""Prometheus metrics, fed by the engine as it steps."""

from __future__ import annotations

from collections import deque
from dataclasses import asdict
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from samebits.engine.engine import Engine
from samebits.engine.job import Generation, Job
from samebits.engine.observer import StepStats
from samebits.server.cluster_gauges import ClusterGauges

SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)
LAST_STEPS = 200  # steps that the page shows


class Metrics:
    """An observer of one engine. `last_steps`, of `num_steps` in all, are for the page."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()

        def gauge(name: str, text: str) -> Gauge:
            return Gauge(f"samebits_{name}", text, registry=registry)

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"samebits_{name}", text, labels, registry=registry)

        def histogram(name: str, text: str) -> Histogram:
            return Histogram(f"samebits_{name}", text, registry=registry, buckets=SECONDS)

        self._first_token = histogram("time_to_first_token_seconds", "From a generation's arrival to its first token")
        self._between = histogram("inter_token_seconds", "Mean time between a generation's tokens")
        self._step = histogram("step_seconds", "Duration of a step")
        self._running = gauge("running_sequences", "Sequences under way")
        self._waiting = gauge("waiting_requests", "Work that waits for the engine: generations, scores, embeddings")
        self._used, self._free = gauge("used_pages", "Pages held"), gauge("free_pages", "Pages that can be taken")
        self._prompt = counter("prompt_tokens", "Prompt tokens computed")
        self._cached = counter("cached_prompt_tokens", "Prompt tokens found in pages")
        self._new = counter("generated_tokens", "Tokens drawn")
        self._drafted = counter("drafted_tokens", "Guessed tokens that were verified")
        self._taken = counter("accepted_draft_tokens", "Guessed tokens that were right")
        self._preemptions = counter("preemptions", "Sequences that had to wait again")
        self._ended = counter("requests", "Generations that ended, by how", "outcome")
        self.refused = counter("refused_requests", "HTTP requests refused, by status", "status")
        self.connections = gauge("connections", "Open connections")
        self.closed = counter("closed_connections", "Connections that the server ended or refused, by why", "reason")
        self.dropped_kv_events = counter("dropped_kv_events", "Changes of the cache that routers were not told of")
        self.resumed = counter("resumed_answers", "Answers that went on with another replica after theirs was lost")
        self._cluster = ClusterGauges(registry)
        self.last_steps: deque[dict[str, Any]] = deque(maxlen=LAST_STEPS)
        self.num_steps = self._seen_cached = self._seen_preemptions = 0

    def stepped(self, stats: StepStats) -> None:
        self._step.observe(stats.seconds)
        self._running.set(stats.num_running)
        self._waiting.set(stats.num_waiting)
        self._used.set(stats.num_used_pages)
        self._free.set(stats.num_free_pages)
        self._prompt.inc(stats.num_prefill_tokens)
        self._drafted.inc(stats.num_drafted)
        self._taken.inc(stats.num_taken)
        self.last_steps.append(asdict(stats))
        self.num_steps += 1

    def ended(self, job: Job) -> None:
        if not isinstance(job, Generation):
            return
        num_tokens = sum(len(a.token_ids) for a in job.answers)
        self._new.inc(num_tokens)
        self._ended.labels("error" if job.error else job.answers[0].finish_reason or "stop").inc()
        if job.first_token_at is not None and job.ended_at is not None:
            self._first_token.observe(job.first_token_at - job.arrived_at)
            longest = max(len(a.token_ids) for a in job.answers)
            if longest > 1:
                self._between.observe((job.ended_at - job.first_token_at) / (longest - 1))

    def text(self, engine: Engine | None, model_name: str) -> bytes:
        """What /metrics answers."""
        if engine is not None:
            scheduler = engine.scheduler
            self._cluster.set(scheduler, model_name)
            self._waiting.set(scheduler.num_waiting)
            self._running.set(scheduler.num_running)
            self._used.set(scheduler.pages.num_used)
            self._free.set(scheduler.pages.num_free)
            self._cached.inc(scheduler.num_cached_tokens - self._seen_cached)
            self._preemptions.inc(scheduler.num_preemptions - self._seen_preemptions)
            self._seen_cached, self._seen_preemptions = scheduler.num_cached_tokens, scheduler.num_preemptions
        return generate_latest(self.registry)
