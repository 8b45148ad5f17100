"""Replicas for a server in this process: on a Ray cluster of its own, or on one that is there."""

from __future__ import annotations

import logging
import os
from contextlib import suppress

import ray
from ray import serve
from ray.serve.config import ProxyLocation
from ray.serve.handle import DeploymentHandle

from samebits.core.errors import Unavailable
from samebits.scale.application import QUIET, replicas_of
from samebits.scale.replicas import RayReplicas
from samebits.scale.settings import Settings

OBJECT_STORE_BYTES = 128 << 20  # Ray's least is 75 MiB; requests are small


def join_cluster(settings: Settings, address: str | None, application: str) -> RayReplicas:
    """Replicas that are started once a server opens them, and ended with it.

    address       of a cluster, "auto" for the one of this machine; None starts one, here alone
    application   Serve's name for them: another server's of the same name would be replaced
    """
    num_cpus = max(os.cpu_count() or 1, (settings.num_replicas or 1) + 1)  # replicas share cores as they can
    options = {} if address else {"num_cpus": num_cpus, "object_store_memory": OBJECT_STORE_BYTES}
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is reported to anyone
    try:
        ray.init(
            address=address or "local",
            include_dashboard=None if address else False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            ignore_reinit_error=True,
            **options,
        )
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise Unavailable(f"serve: no Ray cluster at {address or 'this machine'}: {error}") from None

    def start() -> DeploymentHandle:
        logging.getLogger("ray.serve").setLevel(logging.WARNING)
        try:
            serve.start(proxy_location=ProxyLocation.Disabled, logging_config=QUIET)
        except ray.exceptions.ActorAlreadyExistsError:  # another server joins, and has just started it
            serve.start(proxy_location=ProxyLocation.Disabled, logging_config=QUIET)
        return serve.run(replicas_of(settings), name=application, route_prefix=None, logging_config=QUIET)

    def stop() -> None:
        if address is not None:  # a cluster of our own ends as a whole
            with suppress(ray.exceptions.RayError):
                serve.delete(application)
        ray.shutdown()

    return RayReplicas(start, stop)
