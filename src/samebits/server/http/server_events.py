"""How chunks of an answer go over HTTP as they come: server-sent events, or lines of JSON."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

from starlette.responses import StreamingResponse

from samebits.server.http.error_shapes import Shape, messages_error, ollama_error, openai_error
from samebits.server.http.errors import ApiError, from_exception
from samebits.server.http.json_output import json_text
from samebits.server.http.threads import on_worker

log = logging.getLogger("samebits.server")
INLINE_CHUNK_CHARS = 1 << 15  # a longer chunk is written on another thread
Chunk = dict[str, Any] | Callable[[], dict[str, Any]]  # a large one is made and written on another thread
Encode = Callable[[Any], str]  # writes a value as JSON
CHUNKS_A_TURN = 8  # that one stream writes before other clients get their turn
ITEM_CHARS = 4  # of a number, or so
HEADERS = {"cache-control": "no-cache", "x-accel-buffering": "no"}
EVENT_STREAM = "text/event-stream"


@dataclass(frozen=True)
class Wire:
    """A protocol's way: how a chunk is written, what an error in mid-stream is, and what stands at the end."""

    media_type: str
    written: Callable[[dict[str, Any], Encode], str]
    error: Shape
    last: str = ""


def _event(chunk: dict[str, Any], encode: Encode) -> str:
    return f"data: {encode(chunk)}\n\n"


def _named_event(chunk: dict[str, Any], encode: Encode) -> str:
    return f"event: {chunk['type']}\n{_event(chunk, encode)}"


def _line(chunk: dict[str, Any], encode: Encode) -> str:
    return encode(chunk) + "\n"


def _responses_error(error: ApiError) -> dict[str, Any]:
    """The sequence number is not known here, and no client looks at it."""
    return {"type": "error", "code": error.code, "message": str(error), "param": error.param, "sequence_number": 0}


OPENAI = Wire(EVENT_STREAM, _event, openai_error, "data: [DONE]\n\n")
RESPONSES = Wire(EVENT_STREAM, _named_event, _responses_error)
MESSAGES = Wire(EVENT_STREAM, _named_event, messages_error)
OLLAMA = Wire("application/x-ndjson", _line, ollama_error)


def event_stream(chunks: AsyncIterator[Chunk], request_id: str, wire: Wire = OPENAI) -> StreamingResponse:
    """Chunks on their way; an error in mid-stream is one too. Leaving them unread ends the request."""
    return StreamingResponse(_written(chunks, request_id, wire), media_type=wire.media_type, headers=HEADERS)


async def _written(chunks: AsyncIterator[Chunk], request_id: str, wire: Wire) -> AsyncIterator[str]:
    num_chunks = 0
    try:
        async for chunk in chunks:
            if callable(chunk) or is_longer(chunk, INLINE_CHUNK_CHARS):
                yield await on_worker(_made, chunk, wire)
            else:
                yield wire.written(chunk, json_text.at_once)
            num_chunks += 1
            if num_chunks % CHUNKS_A_TURN == 0:
                await asyncio.sleep(0)  # many may be ready at once, and nothing else would give other clients a turn
    except Exception as error:
        log.exception("%s failed in mid-stream", request_id)
        yield wire.written(wire.error(from_exception(error)), json_text)
    if wire.last:
        yield wire.last


def _made(chunk: Chunk, wire: Wire) -> str:
    return wire.written(chunk() if callable(chunk) else chunk, json_text)


def is_longer(value: Any, num_chars: int) -> bool:
    """Return whether a value is longer than so many characters as JSON, or so. Looks at no more than it must."""
    left, size = [value], 0
    while left and size <= num_chars:
        item = left.pop()
        size += len(item) if isinstance(item, (str, dict, list)) else ITEM_CHARS
        if size <= num_chars and isinstance(item, (dict, list)):
            left += item.values() if isinstance(item, dict) else item
    return size > num_chars
