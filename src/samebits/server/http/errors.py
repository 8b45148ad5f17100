"""Errors as OpenAI's clients read them: an object with message, type, param and code."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError
from starlette.requests import ClientDisconnect

from samebits.core.errors import BadInput, refusal
from samebits.core.printable import printable
from samebits.engine.job import DeadlinePassed, RequestFailed
from samebits.engine.sampling import FOLLOW, SAMPLE
from samebits.server.http.field_errors import MAX_SHOWN, first_refusal

TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error"}
TYPES |= {500: "server_error", 503: "server_error"}


class ApiError(Exception):
    """A refusal with its HTTP status, in one line."""

    def __init__(self, status: int, message: str, param: str | None = None, code: str | None = None) -> None:
        super().__init__(printable(message, None))
        self.status, self.param, self.code = status, param, code

    def as_json(self) -> dict[str, Any]:
        kind = TYPES.get(self.status, "invalid_request_error")
        return {"error": {"message": str(self), "type": kind, "param": self.param, "code": self.code}}


def bad_request(param: str, given: object, needed: str, code: str | None = None) -> ApiError:
    text = str(given)
    shown = text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "..."
    return ApiError(400, refusal(param, shown, needed), param, code)


def of_field(error: BadInput, param: str, code: str = "invalid_value") -> ApiError:
    """Return the error under the name of the request's field that holds the bad value."""
    return ApiError(400, error.sentence(param), param, code)


def busy(message: str) -> ApiError:
    return ApiError(503, message, code="overloaded")


def from_exception(error: Exception) -> ApiError:
    """Whatever a handler raised, as the answer a client gets.

    For our own faults the answer says no more than that, and it never says where: that may be a path on this machine.
    """
    if isinstance(error, ApiError):
        return error
    if isinstance(error, ValidationError):
        return bad_request(*first_refusal(error), "invalid_value")
    if isinstance(error, BadInput):
        return of_field(error, error.argument)
    if isinstance(error, ClientDisconnect):
        return ApiError(499, "the client has gone")
    if isinstance(error, DeadlinePassed):
        return ApiError(503, "the request ran past the server's deadline", code="deadline_exceeded")
    if isinstance(error, RequestFailed) and str(error).startswith(f"{FOLLOW}: "):
        return ApiError(400, str(error).removeprefix(f"{FOLLOW}: "), "response_format", "invalid_value")
    if isinstance(error, RequestFailed):
        is_own = str(error).startswith(f"{SAMPLE}: ")  # a mask or a logit: the text holds nothing of the server's
        reason = f": {error}" if is_own else "; the server's log says more"
        return ApiError(500, f"the request failed{reason}", code="request_failed")
    return ApiError(500, "the server failed; its log says more", code="internal_error")
