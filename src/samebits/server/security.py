"""What stands before every route: a key, a request id, and a log line. Plain ASGI, so that streams pass untouched."""

from __future__ import annotations

import base64
import binascii
import hmac
import logging
import re
import time
import uuid

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from samebits.server.errors import ApiError
from samebits.server.model import ServedModel

log = logging.getLogger("samebits.server")
OPEN_PATHS = ("/health",)
REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


def is_authorized(headers: Headers, key: str) -> bool:
    """Bearer KEY, or KEY as the password of basic authentication, as a browser sends it. In constant time."""
    scheme, _, given = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "basic":
        try:
            given = base64.b64decode(given, validate=True).decode("utf-8").partition(":")[2]
        except (binascii.Error, UnicodeDecodeError):
            given = ""
    elif scheme.lower() != "bearer":
        given = ""
    return hmac.compare_digest(given.strip().encode("utf-8", "replace"), key.encode("utf-8"))


class Gate:
    """Denies by default: with a key, every path but /health needs it, also those that do not exist."""

    def __init__(self, app: ASGIApp, key: str | None, served: ServedModel) -> None:
        self._app, self._key, self._served = app, key, served

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers, started, status = Headers(scope=scope), time.perf_counter(), 0
        asked_id = headers.get("x-request-id", "")
        request_id = asked_id if REQUEST_ID.fullmatch(asked_id) else uuid.uuid4().hex
        scope.setdefault("state", {})["request_id"] = request_id

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                added = MutableHeaders(scope=message)
                added["x-request-id"] = request_id
                if tier := self._served.tier:
                    added["x-samebits-tier"] = tier
            await send(message)

        try:
            if self._key is not None and scope["path"] not in OPEN_PATHS and not is_authorized(headers, self._key):
                wanted = 'Basic realm="samebits"' if scope["path"] == "/" else "Bearer"
                refusal = ApiError(401, "the API key is missing or wrong", code="invalid_api_key")
                await refusal.response({"www-authenticate": wanted})(scope, receive, send_with_headers)
                return
            await self._app(scope, receive, send_with_headers)
        finally:
            milliseconds = 1000 * (time.perf_counter() - started)
            log.info("%s %s %d %.1f ms %s", scope["method"], scope["path"][:200], status, milliseconds, request_id)
