"""What bodies of protocols with one answer share, beside the fields of their own."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from samebits.server.answers.common import proofs
from samebits.server.bodies.base import says
from samebits.server.bodies.openai import Sampling
from samebits.server.http.errors import bad_request
from samebits.server.model import ServedModel
from samebits.server.receipts import ReceiptDesk
from samebits.server.turns.events import ChoiceAnswer


class TurnBody(Sampling):
    """How tokens are drawn may be said in the words of /v1/chat/completions too."""

    n: Annotated[int, Field(ge=1, le=1)] | None = says("these protocols have one answer")
    prompt_logprobs: None = says("these protocols have no place for them")
    stream_options: Any = says("streams always tell their usage")


def thinking_variables(served: ServedModel, param: str, wanted: bool) -> dict[str, Any]:
    """The variable that turns reasoning on or off, none where the model does so by itself; ApiError where it cannot."""
    template = served.llm.chat_template
    if template is not None and template.names("enable_thinking"):
        return {"enable_thinking": wanted}
    reasons = served.forms.marks is not None or served.llm.tokenizer.special.marks is not None
    if wanted is not reasons:
        given = f"reasoning turned {'on' if wanted else 'off'}"
        raise bad_request(param, given, "nothing: the model's chat template names no variable for it")
    return {}


def repeatable(answer: ChoiceAnswer, desk: ReceiptDesk | None) -> dict[str, Any]:
    """What lets a client repeat an answer: its seed, and the hash of its logits and its receipt where asked for."""
    if answer.completion is None:
        return {}
    return {"seed": answer.completion.seed, **proofs(answer.completion, desk)}
