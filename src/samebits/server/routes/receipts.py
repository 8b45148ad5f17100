"""The route /v1/receipts/{id}, where the operator has turned it on."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from samebits.server.http.errors import ApiError
from samebits.server.http.json_output import PartedResponse
from samebits.server.model import ServedModel


async def receipts(request: Request) -> Response:
    """The receipts of a request's answers, a line of JSON each, as `samebits replay` reads them; 404 for none."""
    served: ServedModel = request.app.state.served.ready()
    desk = served.desk
    if not desk.keep_seconds:
        raise ApiError(
            404, "no receipts are kept: `samebits serve --receipts SECONDS` keeps them", code="receipts_not_kept"
        )
    found = desk.find(request.path_params["id"])
    if not found:
        needed = f"the id of an answer of the last {desk.keep_seconds:g} seconds"
        raise ApiError(404, f"no receipt is kept for this id: it must be {needed}", "id", "receipt_not_found")
    lines = await asyncio.to_thread(lambda: b"".join(desk.sealed(receipt).to_json() + b"\n" for receipt in found))
    return PartedResponse(lines, media_type="application/jsonl")
