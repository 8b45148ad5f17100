"""What a client's body asks for: read within bounds, checked, and turned into the engine's parameters."""

from __future__ import annotations

import logging
from typing import TypeVar

from starlette.requests import Request

from samebits.engine.sampling import SamplingParams
from samebits.server.errors import ApiError, bad_request
from samebits.server.json_input import parse_object
from samebits.server.limits import Limits
from samebits.server.logs import printable
from samebits.server.protocol import Body, Sampling, check_refused, unknown_fields
from samebits.server.threads import off_loop

log = logging.getLogger("samebits.server")
AnyBody = TypeVar("AnyBody", bound=Body)
SEED_BITS = (1 << 64) - 1


async def read_body(request: Request, kind: type[AnyBody], max_bytes: int) -> AnyBody:
    """The checked body; ApiError for one that is too long, not JSON, or wrong."""
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > max_bytes:
            raise ApiError(413, f"body: got more than {max_bytes} bytes; needs fewer", code="body_too_large")
    body, unknown = await off_loop(checked_body, len(data), data, kind)
    if unknown:
        log.warning("%s ignores unknown fields: %s", printable(request.url.path), ", ".join(map(repr, unknown)))
    return body


def checked_body(data: bytes | bytearray, kind: type[AnyBody]) -> tuple[AnyBody, list[str]]:
    """The body, and the unknown names in it; ApiError or ValidationError for a wrong one."""
    content = parse_object(data)
    check_refused(kind, content)
    return kind.model_validate(content), unknown_fields(kind, content)


def sampling_params(
    body: Sampling, limits: Limits, max_tokens: int, logprobs: int | None, is_deterministic: bool
) -> SamplingParams:
    """The engine's parameters; without a seed a deterministic server takes 0."""
    n, stops = body.given("n", 1), body.stops()
    if n > limits.max_samples:
        raise bad_request("n", n, f"at most {limits.max_samples}")
    if len(stops) > limits.max_stops:
        raise bad_request("stop", f"{len(stops)} strings", f"at most {limits.max_stops}")
    seed = body.seed if body.seed is not None or not is_deterministic else 0
    return SamplingParams(
        max_tokens=max_tokens,
        temperature=body.given("temperature", 1.0),
        top_k=body.given("top_k", 0),
        top_p=max(body.given("top_p", 1.0), 2.0**-16),
        min_p=body.given("min_p", 0.0),
        repetition_penalty=body.given("repetition_penalty", 1.0),
        presence_penalty=body.given("presence_penalty", 0.0),
        frequency_penalty=body.given("frequency_penalty", 0.0),
        logit_bias={int(token): value for token, value in body.given("logit_bias", {}).items()},
        seed=None if seed is None else seed & SEED_BITS,
        n=n,
        stop=stops,
        logprobs=logprobs,
        ignore_eos=body.given("ignore_eos", False),
    )
