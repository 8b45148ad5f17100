"""Gauges under the names that cluster schedulers read: vLLM's, which llm-d and the gateway API's pickers expect."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Gauge

from samebits.scheduler import Scheduler

MODEL_LABEL = "model_name"


class ClusterGauges:
    """Queue, batch and cache of one engine. They say what `samebits_` metrics say too, for readers of other names."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"vllm:{name}", text, (MODEL_LABEL, *labels), registry=registry)

        self._waiting = gauge("num_requests_waiting", "Requests that wait for the engine")
        self._running = gauge("num_requests_running", "Sequences under way")
        self._usage = gauge("kv_cache_usage_perc", "The share of pages that sequences hold, from 0 to 1")
        self._sizes = gauge("cache_config_info", "The cache's sizes, as labels", "block_size", "num_gpu_blocks")

    def set(self, scheduler: Scheduler, model_name: str) -> None:
        pages = scheduler.pages
        num_pages = pages.pool.num_pages - 1  # page 0 is never used
        self._waiting.labels(model_name).set(scheduler.num_waiting)
        self._running.labels(model_name).set(scheduler.num_running)
        self._usage.labels(model_name).set(pages.num_used / num_pages)
        self._sizes.labels(model_name, pages.page_size, num_pages).set(1)
