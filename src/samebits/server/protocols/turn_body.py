"""What bodies of protocols with one answer share, beside the fields of their own."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from samebits.server.base_body import says
from samebits.server.protocol import Sampling
from samebits.server.turn_events import ChoiceAnswer


class TurnBody(Sampling):
    """How tokens are drawn may be said in the words of /v1/chat/completions too."""

    n: Annotated[int, Field(ge=1, le=1)] | None = says("these protocols have one answer")
    prompt_logprobs: None = says("these protocols have no place for them")
    stream_options: Any = says("streams always tell their usage")


def receipt(answer: ChoiceAnswer) -> dict[str, Any]:
    """What lets a client repeat an answer: its seed, and the hash of its logits where asked for."""
    if answer.completion is None:
        return {}
    told = {"seed": answer.completion.seed, "logits_sha256": answer.completion.logits_sha256}
    return {name: value for name, value in told.items() if value is not None}
