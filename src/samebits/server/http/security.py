"""What stands before every route: who may come in, a request id, and a log line. Plain ASGI: streams pass untouched."""

from __future__ import annotations

import base64
import binascii
import hmac
import logging
import re
import time
import uuid
from contextlib import ExitStack
from dataclasses import dataclass

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from samebits.core.errors import BadInput, as_given, refusal
from samebits.core.printable import printable
from samebits.server.http.error_shapes import error_response
from samebits.server.http.errors import ApiError
from samebits.server.http.pacing import Pacer
from samebits.server.model import ServedModel

log = logging.getLogger("samebits.server")
OPEN_PATHS, METRICS_PATH = ("/health",), "/metrics"
OWN_NAMES = ("localhost", "127.0.0.1", "[::1]")
REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
DEFAULT_TYPES = frozenset({"", "application/x-www-form-urlencoded", "application/octet-stream"})  # none, curl, aiohttp
HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:[0-9]{1,5})?")


@dataclass(frozen=True)
class Door:
    """Who may come in: the key, the sites whose pages may call, and the address the server listens on.

    has_open_metrics   schedulers and Prometheus may read /metrics without the key

    BadInput for a key that no request could carry; an empty one would mean that there is no key.
    """

    api_key: str | None = None
    cors_origins: tuple[str, ...] = ()
    host: str = "127.0.0.1"
    has_open_metrics: bool = False

    def __post_init__(self) -> None:
        key = self.api_key
        if key is None:
            return
        if not key.strip():
            raise BadInput("serve", "--api-key", "nothing" if not key else "blanks", "a key; is its variable set?")
        if key != key.strip() or not (key.isascii() and key.isprintable()):
            raise BadInput("serve", "--api-key", "a text that no header can carry", "ASCII without blanks at its ends")

    @property
    def open_paths(self) -> tuple[str, ...]:
        """Those that ask for no key."""
        return (*OPEN_PATHS, METRICS_PATH) if self.has_open_metrics else OPEN_PATHS

    def refusal(self, scope: Scope, headers: Headers) -> ApiError | None:
        """Why this request may not come in, or None.

        Where a key is set, only the key counts. Without one the server is for programs on this machine. A browser on it
        may run pages of other sites: those use a name of their own (Host) or say where they come from (Origin).
        """
        if self.api_key is not None:
            if scope["path"] in self.open_paths or is_authorized(headers, self.api_key):
                return None
            return ApiError(401, "the API key is missing or wrong", code="invalid_api_key")
        given = headers.get("host", "").lower()
        found = HOST.fullmatch(given)
        own = f"[{self.host}]" if ":" in self.host else self.host.lower()
        if found is None or found[1] not in (*OWN_NAMES, own):
            needed = f"{', '.join(dict.fromkeys((*OWN_NAMES, own)))}, or a server with an API key"
            return ApiError(403, refusal("host", _shown(given), needed), "host", "wrong_host")
        for origin in headers.getlist("origin"):
            is_own = origin.lower() in (f"http://{given}", f"https://{given}")
            if not is_own and not {origin, "*"} & set(self.cors_origins):
                message = refusal("origin", _shown(origin), "a site that --cors-origin names")
                return ApiError(403, message, "origin", "wrong_origin")
        return None


def _shown(value: str) -> str:
    """Return a header's value for a message, or what refusals call an absent one."""
    return as_given(printable(value, 80)) if value else "nothing"


def is_authorized(headers: Headers, key: str) -> bool:
    """Bearer KEY, or KEY as the password of basic authentication, as a browser sends it. In constant time.

    Anthropic's clients send it in a header of its own.
    """
    scheme, _, given = headers.get("authorization", "").partition(" ")
    if own := headers.get("x-api-key"):
        scheme, given = "bearer", own
    if scheme.lower() == "basic":
        try:
            given = base64.b64decode(given, validate=True).decode("utf-8").partition(":")[2]
        except (binascii.Error, UnicodeDecodeError):
            given = ""
    elif scheme.lower() != "bearer":
        given = ""
    return hmac.compare_digest(given.strip().encode("utf-8", "replace"), key.encode("utf-8"))


def may_be_browser(headers: Headers) -> bool:
    """Return whether a header that browsers send by themselves, and programs do not, is present."""
    return any(name in ("origin", "referer") or name.startswith("sec-fetch-") for name in headers)


def body_refusal(scope: Scope, headers: Headers, max_body_bytes: int) -> ApiError | None:
    """Return why the body is refused unread: its length or its content type. None if it may be read.

    A page of any site can make a browser send a body whose type is not JSON, without the server's permission. Programs
    that set no type, or leave their HTTP library's default, are accepted unless a header indicates a browser.
    """
    if scope["method"] != "POST":
        return None
    kinds = {value.partition(";")[0].strip().lower() for value in headers.getlist("content-type")} or {""}
    is_default = len(kinds) == 1 and kinds <= DEFAULT_TYPES
    if kinds != {"application/json"} and (not is_default or may_be_browser(headers)):
        given = _shown(", ".join(sorted(kinds)))
        return ApiError(415, refusal("content-type", given, "application/json"), "content-type", "wrong_content_type")
    if int(headers.get("content-length", "0")) > max_body_bytes:
        return ApiError(413, f"body must have at most {max_body_bytes} bytes", code="body_too_large")
    return None


class Gate:
    """Denies by default: where a key is set, every path but the open ones needs it, even one that does not exist."""

    def __init__(self, app: ASGIApp, door: Door, served: ServedModel) -> None:
        self._app, self._door, self._served = app, door, served
        self._pacer = Pacer()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["method"] == "POST":
            await self._pacer.wait()
        headers, started, status = Headers(scope=scope), time.perf_counter(), 0
        asked_id = headers.get("x-request-id", "")
        request_id = asked_id if REQUEST_ID.fullmatch(asked_id) else uuid.uuid4().hex
        ends = ExitStack()  # called when the request has ended, however it did: what it started ends with it
        scope.setdefault("state", {}).update(request_id=request_id, ends=ends)

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
            refusal = self._door.refusal(scope, headers)
            refusal = refusal or body_refusal(scope, headers, self._served.limits.max_body_bytes)
            if refusal is None:
                await self._app(scope, receive, send_with_headers)
                return
            wanted = 'Basic realm="samebits"' if scope["path"] == "/" else "Bearer"
            added = {"www-authenticate": wanted} if refusal.status == 401 else None
            await error_response(refusal, scope["path"], added)(scope, receive, send_with_headers)
        finally:
            ends.close()
            milliseconds = 1000 * (time.perf_counter() - started)
            path = printable(scope["path"])
            log.info("%s %s %d %.1f ms %s", printable(scope["method"], 20), path, status, milliseconds, request_id)
