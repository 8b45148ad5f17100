"""Answers as JSON, however long, without holding the interpreter, as `json.dumps` would from beginning to end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from samebits.server.http.threads import off_loop

PART_BYTES = 1 << 18
BATCH = 256  # numbers and texts that are encoded in one call
CONTAINERS = {dict, list, tuple}  # each item of these is encoded by itself


class JsonText:
    """Writes JSON: `comma` stands between items, `colon` between a name and its value.

    at_once  writes a short value in a fraction of the time; other threads wait until it is written
    """

    def __init__(self, comma: str, colon: str) -> None:
        self._comma, self._colon = comma, colon
        self.at_once = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(comma, colon)).encode

    def __call__(self, value: Any) -> str:
        """Return `value` as JSON. Raise ValueError for NaN and infinities."""
        return self._text(value)

    def _text(self, value: Any) -> str:
        """Return `value` as JSON. A level of nesting takes one frame, so what `json.loads` has read can be written."""
        parts = []
        if isinstance(value, dict):
            for name, item in value.items():
                text = self._text(item)
                parts.append(f"{self.at_once(name)}{self._colon}{text}")
            return "{" + self._comma.join(parts) + "}"
        if not isinstance(value, (list, tuple)):
            return self.at_once(value)
        for start in range(0, len(value), BATCH):
            batch = value[start : start + BATCH]
            if CONTAINERS.isdisjoint(map(type, batch)):
                parts.append(self.at_once(batch)[1:-1])
                continue
            for item in batch:
                text = self._text(item)
                parts.append(text)
        return "[" + self._comma.join(parts) + "]"


json_text = JsonText(",", ":")  # what goes over HTTP
spaced_json_text = JsonText(", ", ": ")  # what models are shown


async def json_response(make: Callable[[], Any], size: int) -> Response:
    """What `make` returns, made and encoded on another thread where `size`, in characters or so, is not small."""
    data = await off_loop(lambda: json_text(make()).encode("utf-8"), size)
    return PartedResponse(data, media_type="application/json")


class PartedResponse(Response):
    """A whole answer that leaves in parts: other clients get their turn, and no part is copied before it can leave."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        for start in range(0, max(len(self.body), 1), PART_BYTES):
            end = start + PART_BYTES
            part = {"body": self.body[start:end], "more_body": end < len(self.body)}
            await send({"type": "http.response.body", **part})
            await asyncio.sleep(0)
