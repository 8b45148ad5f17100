"""The application: routes, what every answer goes through, and the schema."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Lifespan

from samebits.core.errors import BadInput
from samebits.server import page_routes, status_routes, text_routes
from samebits.server.chat_route import chat_completions
from samebits.server.completion_routes import completions
from samebits.server.error_shapes import error_response, handle_http_exception
from samebits.server.errors import from_exception
from samebits.server.logs import printable
from samebits.server.metrics import Metrics
from samebits.server.model import ServedModel
from samebits.server.openapi import schema
from samebits.server.protocols import ollama
from samebits.server.protocols.messages import messages
from samebits.server.protocols.rerank import rerank
from samebits.server.protocols.responses import responses
from samebits.server.security import Door, Gate

log = logging.getLogger("samebits.server")
Endpoint = Callable[[Request], Awaitable[Response]]


def guarded(endpoint: Endpoint) -> Endpoint:
    """Whatever an endpoint raises becomes an error object; faults of ours are logged whole."""

    async def call(request: Request) -> Response:
        try:
            return await endpoint(request)
        except HTTPException:
            raise
        except Exception as error:
            answer = from_exception(error)
            path = printable(request.url.path)
            if answer.status == 500:
                log.exception("%s failed", path)
            elif isinstance(error, BadInput):  # the client is not told where on this machine the fault lies
                log.info("%s refused: %s", path, printable(error, 1000))
            request.app.state.metrics.refused.labels(str(answer.status)).inc()
            return error_response(answer, request.url.path)

    return call


async def openapi(request: Request) -> Response:
    return JSONResponse(schema(request.app.state.served.name))


ROUTES: tuple[tuple[str, str, Endpoint], ...] = (
    ("POST", "/v1/chat/completions", chat_completions),
    ("POST", "/v1/completions", completions),
    ("POST", "/v1/responses", responses),
    ("POST", "/v1/messages", messages),
    ("POST", "/v1/rerank", rerank),
    ("GET", "/version", status_routes.version),
    ("GET", "/props", status_routes.props),
    ("POST", "/api/chat", ollama.chat),
    ("POST", "/api/generate", ollama.generate),
    ("GET", "/api/tags", ollama.tags),
    ("GET", "/api/ps", ollama.running_models),
    ("GET", "/api/version", status_routes.version),
    ("POST", "/api/show", ollama.show),
    ("POST", "/v1/embeddings", text_routes.embeddings),
    ("GET", "/v1/models", status_routes.models),
    ("GET", "/v1/models/{name:path}", status_routes.model),
    ("POST", "/tokenize", text_routes.tokenize),
    ("POST", "/detokenize", text_routes.detokenize),
    ("GET", "/health", status_routes.health),
    ("GET", "/metrics", status_routes.metrics),
    ("GET", "/state", status_routes.state),
    ("GET", "/openapi.json", openapi),
    ("GET", "/", page_routes.page),
    ("GET", "/page/{name}", page_routes.page_file),
)


def build_app(
    served: ServedModel, metrics: Metrics, door: Door, lifespan: Lifespan[Starlette] | None = None
) -> Starlette:
    """The server as an ASGI application over a model that may still be loading."""
    middleware = [Middleware(Gate, door=door, served=served)]
    if door.cors_origins:
        methods, headers = ("GET", "POST"), ("*",)
        cors = Middleware(CORSMiddleware, door.cors_origins, allow_methods=methods, allow_headers=headers)
        middleware.insert(0, cors)
    routes = [Route(path, guarded(endpoint), methods=[method]) for method, path, endpoint in ROUTES]
    handlers = {HTTPException: handle_http_exception}
    app = Starlette(routes=routes, middleware=middleware, exception_handlers=handlers, lifespan=lifespan)
    app.state.served, app.state.metrics = served, metrics
    return app
