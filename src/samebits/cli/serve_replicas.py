"""`samebits serve --replicas`: the same server before engines in processes of their own."""

from __future__ import annotations

import socket
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from samebits.cli.model_options import llm_options
from samebits.core.processors import usable_processors
from samebits.engine.settings import DEFAULT_MEMORY

if TYPE_CHECKING:  # an extra, and slow to import
    from samebits.server.metrics import Metrics
    from samebits.server.relay.model import RelayedModel


def replicated(
    served: RelayedModel, options: SimpleNamespace, num_replicas: int, address: str | None, routing: str, port: int
) -> Callable[[Metrics], Coroutine[Any, Any, None]]:
    """Joins a Ray cluster, now; what has `served` join its replicas. Unavailable where there is no Ray, or no cluster.

    options   of the model; without a number of threads the replicas of this machine share its cores, and without a
              share of memory its memory
    port      of the server: with the machine's name it is that of the replicas too, so that servers of one cluster
              keep apart, and one that starts again where it was killed takes over those that it had
    """
    from samebits.scale.needs import need_ray

    need_ray()
    from samebits.scale.local import join_cluster
    from samebits.scale.settings import GPU_BACKENDS, Settings

    llm = llm_options(**vars(options))
    if llm["threads"] is None and address is None:
        llm["threads"] = max(1, usable_processors() // num_replicas)
    if llm["memory"] is None and address is None and llm["backend"] not in GPU_BACKENDS:
        llm["memory"] = DEFAULT_MEMORY / num_replicas
    settings = Settings(llm, num_replicas, routing, served.name, limits=served.limits)
    replicas = join_cluster(settings, address, f"samebits-{socket.gethostname()}-{port}")
    return lambda metrics: served.join(replicas, settings.llm)
