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
from samebits.core.printable import printable
from samebits.server.bodies.budget import BodyBudget
from samebits.server.http.error_shapes import error_response, handle_http_exception
from samebits.server.http.errors import from_exception
from samebits.server.http.security import Door, Gate
from samebits.server.limits import MAX_BODIES
from samebits.server.metrics import Metrics
from samebits.server.model import ServedModel
from samebits.server.openapi import schema
from samebits.server.protocols import ollama
from samebits.server.protocols.messages import messages
from samebits.server.protocols.rerank import rerank
from samebits.server.protocols.responses import responses
from samebits.server.routes import page, status, texts
from samebits.server.routes.chat import chat_completions
from samebits.server.routes.completions import completions
from samebits.server.routes.receipts import receipts

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
    ("GET", "/version", status.version),
    ("GET", "/props", status.props),
    ("POST", "/api/chat", ollama.chat),
    ("POST", "/api/generate", ollama.generate),
    ("GET", "/api/tags", ollama.tags),
    ("GET", "/api/ps", ollama.running_models),
    ("GET", "/api/version", status.version),
    ("POST", "/api/show", ollama.show),
    ("POST", "/v1/embeddings", texts.embeddings),
    ("GET", "/v1/receipts/{id}", receipts),
    ("GET", "/v1/models", status.models),
    ("GET", "/v1/models/{name:path}", status.model),
    ("POST", "/tokenize", texts.tokenize),
    ("POST", "/detokenize", texts.detokenize),
    ("GET", "/tokenizer_info", texts.tokenizer_info),
    ("GET", "/health", status.health),
    ("GET", "/metrics", status.metrics),
    ("GET", "/state", status.state),
    ("GET", "/openapi.json", openapi),
    ("GET", "/", page.page),
    ("GET", "/page/{name}", page.page_file),
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
    app.state.bodies = BodyBudget(MAX_BODIES * served.limits.max_body_bytes)
    return app
