"""Server-sent events: how chunks of an answer go over HTTP."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

from starlette.responses import StreamingResponse

from samebits.server.errors import from_exception
from samebits.server.json_output import json_text

log = logging.getLogger("samebits.server")
EVENTS_A_TURN = 16
HEADERS = {"cache-control": "no-cache", "x-accel-buffering": "no"}


def event(content: object) -> str:
    return f"data: {json_text(content)}\n\n"


def event_stream(chunks: AsyncIterator[dict[str, Any]], request_id: str) -> StreamingResponse:
    """Chunks as events, then "[DONE]"; an error in mid-stream is an event too. Leaving them unread ends the request."""
    return StreamingResponse(_events(chunks, request_id), media_type="text/event-stream", headers=HEADERS)


async def _events(chunks: AsyncIterator[dict[str, Any]], request_id: str) -> AsyncIterator[str]:
    num_sent = 0
    try:
        async for chunk in chunks:
            yield event(chunk)
            num_sent += 1
            if num_sent % EVENTS_A_TURN == 0:
                # many chunks may be ready at once, and nothing else would give other clients a turn
                await asyncio.sleep(0)
    except Exception as error:
        log.exception("%s failed in mid-stream", request_id)
        yield event(from_exception(error).as_json())
    yield "data: [DONE]\n\n"
