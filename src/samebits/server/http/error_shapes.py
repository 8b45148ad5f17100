"""Errors in the shape of the protocol that a path belongs to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from samebits.server.http.errors import ApiError
from samebits.server.http.field_errors import MAX_SHOWN
from samebits.server.limits import RETRY_AFTER_SECONDS

Shape = Callable[[ApiError], dict[str, Any]]
MESSAGES_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    500: "api_error",
    503: "overloaded_error",
}


def openai_error(error: ApiError) -> dict[str, Any]:
    return error.as_json()


def messages_error(error: ApiError) -> dict[str, Any]:
    """Anthropic's."""
    kind = MESSAGES_TYPES.get(error.status, "invalid_request_error")
    return {"type": "error", "error": {"type": kind, "message": str(error)}}


def ollama_error(error: ApiError) -> dict[str, Any]:
    return {"error": str(error)}


SHAPES: dict[str, Shape] = {"/v1/messages": messages_error, "/api/": ollama_error}  # by how a path begins


def shape_for(path: str) -> Shape:
    return next((shape for start, shape in SHAPES.items() if path.startswith(start)), openai_error)


def error_response(error: ApiError, path: str, headers: dict[str, str] | None = None) -> Response:
    """The whole answer to a request for `path` that failed."""
    headers = dict(headers or {})
    if error.status == 503:
        headers["retry-after"] = str(RETRY_AFTER_SECONDS)
    return JSONResponse(shape_for(path)(error), error.status, headers)


async def handle_http_exception(request: Request, error: Exception) -> Response:
    """Unknown paths and methods in the same shape."""
    status, path = getattr(error, "status_code", 500), request.url.path
    text = {404: f"no such path: {path[:MAX_SHOWN]}", 405: f"{request.method} is not allowed here"}
    answer = ApiError(status, text.get(status, "refused"))
    return error_response(answer, path, dict(getattr(error, "headers", None) or {}))
