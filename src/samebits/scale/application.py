"""The Serve application: a deployment of replicas, and before it one of servers that Ray's proxies send requests to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from ray import serve
from ray.serve.config import RequestRouterConfig
from ray.serve.handle import DeploymentHandle
from starlette.applications import Starlette
from starlette.types import ASGIApp

from samebits.core.errors import BadInput, Unavailable
from samebits.scale.replica import Replica
from samebits.scale.replicas import RayReplicas
from samebits.scale.router import PrefixRouter
from samebits.scale.settings import KEY_VARIABLE, ROUTINGS, Settings, from_args
from samebits.server.app import build_app
from samebits.server.http.security import Door
from samebits.server.metrics import Metrics
from samebits.server.relay.model import RelayedModel

HEALTH_SECONDS = 1.0  # between looks at whether a replica lives
DRAIN_LOOK_SECONDS = 0.5  # between looks at whether a replica that shall end still answers; what comes later moves on
QUIET = {"log_level": "WARNING", "enable_access_log": False}


def replicas_of(settings: Settings) -> serve.Application:
    """The deployment of replicas, bound to its settings."""
    routed = {"by_prefix": settings.routing == ROUTINGS[0]}
    options: dict[str, Any] = {} if settings.num_replicas is None else {"num_replicas": settings.num_replicas}
    return (
        serve.deployment(Replica)
        .options(
            name="Replica",
            **options,
            max_ongoing_requests=settings.limits.max_waiting + settings.most_sequences,
            ray_actor_options={"num_cpus": 1, "num_gpus": settings.num_gpus},
            request_router_config=RequestRouterConfig(request_router_class=PrefixRouter, request_router_kwargs=routed),
            health_check_period_s=HEALTH_SECONDS,
            graceful_shutdown_timeout_s=settings.limits.drain_seconds,
            graceful_shutdown_wait_loop_s=DRAIN_LOOK_SECONDS,
            logging_config=QUIET,
        )
        .bind(settings)
    )


@serve.ingress()
class Server:
    """A server in a deployment of its own: Ray's HTTP proxies are before it, the replicas behind it."""

    def __init__(self, replicas: DeploymentHandle, settings: Settings) -> None:
        self._replicas, self._settings = RayReplicas(lambda: replicas, lambda: None), settings

    def __serve_build_asgi_app__(self) -> ASGIApp:
        settings, metrics = self._settings, Metrics()
        served = RelayedModel(settings.name, settings.limits, False)

        @asynccontextmanager
        async def lifespan(app: Starlette) -> AsyncIterator[None]:
            """Ray sends requests here once this has begun: in an update, not before there are replicas to answer."""
            try:
                await served.join(self._replicas, settings.llm)
                if served.failure is not None:
                    raise Unavailable(f"server: {settings.name} cannot be served: {served.failure}")
                yield
            finally:
                await asyncio.to_thread(served.close)

        return build_app(served, metrics, Door(settings.api_key, host="0.0.0.0"), lifespan)


def application(args: Mapping[str, Any]) -> serve.Application:
    """The whole of it, for a Serve config file with these `args`."""
    settings = from_args(args)
    if settings.api_key is None:
        needed = f"one, in args or {KEY_VARIABLE}: Ray's proxies may listen where others can reach them"
        raise BadInput("build_app", "api_key", "none", needed)
    server = serve.deployment(Server).options(
        name="Server",
        max_ongoing_requests=settings.limits.max_connections,
        ray_actor_options={"num_cpus": 1},
        graceful_shutdown_timeout_s=settings.limits.drain_seconds,
        logging_config=QUIET,
    )
    return server.bind(replicas_of(settings), settings)
