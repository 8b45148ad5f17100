"""The routes that say what is served and how it goes: models, health, metrics, and the state that the page draws."""

from __future__ import annotations

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from samebits import NUMERICS_VERSION, __version__
from samebits.server.limits import CHAT_TOKENS
from samebits.server.model import READY, ServedModel


async def models(request: Request) -> Response:
    served: ServedModel = request.app.state.served
    return JSONResponse({"object": "list", "data": [_model_card(served)]})


async def model(request: Request) -> Response:
    served: ServedModel = request.app.state.served
    served.check_name(request.path_params["name"])
    return JSONResponse(_model_card(served))


def _model_card(served: ServedModel) -> dict[str, object]:
    card: dict[str, object] = {"id": served.name, "object": "model", "created": served.created, "owned_by": "samebits"}
    if served.state == READY:
        card |= {"max_model_len": served.llm.max_len, "system_fingerprint": served.fingerprint}
    return card


async def version(request: Request) -> Response:
    return JSONResponse({"version": __version__, "numerics": NUMERICS_VERSION})


async def props(request: Request) -> Response:
    """Return what llama-server's clients ask for: the context, slots, template and the values of fields left out.

    The model has no path here.
    """
    served: ServedModel = request.app.state.served.ready()
    template, defaults = served.llm.chat_template, served.llm.sampling_defaults
    drawn_with = {**defaults.values(), "repeat_penalty": defaults.repetition_penalty}  # llama-server's name too
    return JSONResponse(
        {
            "model_alias": served.name,
            "total_slots": served.num_slots,
            "default_generation_settings": {
                "n_ctx": served.llm.max_len,
                "params": {**drawn_with, "max_tokens": min(CHAT_TOKENS, served.llm.max_len)},
            },
            "sampling_defaults": defaults.source,
            "chat_template": template.source if template else "",
            "bos_token": served.llm.tokenizer.token_text(served.llm.tokenizer.special.bos),
            "eos_token": served.llm.tokenizer.token_text(served.llm.tokenizer.special.eos),
            "modalities": {"vision": False, "audio": False},
            "build_info": served.fingerprint,
        }
    )


async def health(request: Request) -> Response:
    """200 when requests can be answered, else 503 with the reason."""
    served: ServedModel = request.app.state.served
    state = served.state
    return JSONResponse({"status": state, "reason": served.reason}, 200 if state == READY else 503)


async def metrics(request: Request) -> Response:
    served: ServedModel = request.app.state.served
    text = await served.metrics_text(request.app.state.metrics)
    return Response(text, media_type=CONTENT_TYPE_LATEST)


async def state(request: Request) -> Response:
    """Return what the page draws: pages, sequences under way, the last steps; and how memory is divided."""
    served: ServedModel = request.app.state.served.ready()
    seen = await served.seen()
    metrics = request.app.state.metrics
    steps = {"num_steps": metrics.num_steps, "steps": list(metrics.last_steps)}
    about = {"model": served.name, "fingerprint": served.fingerprint, "tier": served.tier}
    memory = {} if served.division is None else {"memory": served.division.as_json()}
    return JSONResponse({**about, **steps, **seen, **memory})
