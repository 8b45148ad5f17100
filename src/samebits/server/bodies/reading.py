"""What a client's body asks for: read within bounds, checked, and turned into the engine's parameters."""

from __future__ import annotations

from typing import TypeVar

from pydantic import ValidationError
from starlette.requests import Request

from samebits.core.sampling_defaults import MIN_TOP_P, SamplingDefaults
from samebits.engine.sampling import SamplingParams
from samebits.server.bodies.base import Body, check_names
from samebits.server.bodies.budget import BodyBudget
from samebits.server.bodies.fields import check_fields
from samebits.server.bodies.openai import Sampling
from samebits.server.http.connection import address_of
from samebits.server.http.errors import ApiError, bad_request
from samebits.server.http.field_errors import first_refusal
from samebits.server.http.json_input import parse_object
from samebits.server.http.threads import off_loop
from samebits.server.limits import Limits

DRAW_A_SEED = -1  # in the words of vLLM and llama-server
AnyBody = TypeVar("AnyBody", bound=Body)
SEED_BITS = (1 << 64) - 1


async def read_body(request: Request, kind: type[AnyBody], max_bytes: int) -> AnyBody:
    """Return the checked body, and note its size in `request.state.body_bytes`.

    Raise ApiError if the body is too long, not JSON, wrong, or has fields that are not honoured, and if the bodies of
    all connections are too long together.
    """
    budget: BodyBudget = request.app.state.bodies
    with budget.body(address_of(request.client)) as body:
        async for chunk in request.stream():
            if len(body.data) + len(chunk) > max_bytes:
                raise ApiError(413, f"body must have at most {max_bytes} bytes", code="body_too_large")
            budget.add(body, chunk)
        budget.complete(body)
        request.state.body_bytes = len(body.data)
        return await off_loop(checked_body, len(body.data), body.data, kind)


def checked_body(data: bytes | bytearray, kind: type[AnyBody]) -> AnyBody:
    """Return the body. Raise ApiError for a wrong one."""
    content = {name: value for name, value in parse_object(data).items() if value is not None}
    check_fields(kind, content)
    check_names(kind, content)
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        raise bad_request(*first_refusal(error, kind), "invalid_value") from None


def sampling_params(
    body: Sampling,
    limits: Limits,
    max_tokens: int,
    logprobs: int | None,
    is_deterministic: bool,
    defaults: SamplingDefaults,
) -> SamplingParams:
    """Return the engine's parameters, `defaults` being the values of fields that the body leaves out.

    Without a seed a deterministic server takes 0.
    """
    n, stops = body.given("n", 1), body.stops()
    if n > limits.max_samples:
        raise bad_request("n", n, f"at most {limits.max_samples}")
    if body.stream and body.prompt_logprobs is not None:
        raise bad_request("prompt_logprobs", body.prompt_logprobs, "absent from a request with stream: true")
    if len(stops) > limits.max_stops:
        raise bad_request("stop", f"{len(stops)} strings", f"at most {limits.max_stops}")
    seed = None if body.seed == DRAW_A_SEED else body.seed
    seed = 0 if seed is None and is_deterministic else seed
    params = SamplingParams(
        max_tokens=max_tokens,
        temperature=body.temperature,
        top_k=None if body.top_k is None else max(body.top_k, 0),
        top_p=None if body.top_p is None else max(body.top_p, MIN_TOP_P),
        min_p=body.min_p,
        repetition_penalty=body.repetition_penalty,
        presence_penalty=body.given("presence_penalty", 0.0),
        frequency_penalty=body.given("frequency_penalty", 0.0),
        logit_bias={int(token): value for token, value in body.given("logit_bias", {}).items()},
        seed=None if seed is None else seed & SEED_BITS,
        n=n,
        stop=stops,
        logprobs=logprobs,
        ignore_eos=body.given("ignore_eos", False),
        min_tokens=body.given("min_tokens", 0),
        stop_token_ids=tuple(body.given("stop_token_ids", ())),
        include_stop=body.given("include_stop_str_in_output", False),
        skip_special=body.given("skip_special_tokens", True),
        allowed_token_ids=None if body.allowed_token_ids is None else tuple(body.allowed_token_ids),
        bad_words=tuple(body.given("bad_words", ())),
        prompt_logprobs=body.prompt_logprobs,
        hash_logits=body.given("logits_sha256", False),
        receipt=body.given("receipt", False),
    )
    return params.resolved(defaults)
