"""One turn of a conversation, in no protocol's words: what every chat protocol of this server stands on.

A route translates its body into a `Turn`, starts it, and translates what comes back:

    stream = await start_turn(request, served, turn)
    async for step in stream.steps():           # as it comes, all choices interleaved
        ... step.choice, step.events, step.piece
    answers = await stream.answers()            # or whole: a ChoiceAnswer per choice, made of the same events

`steps` and `answers` raise what goes wrong, and leaving them early ends the request; only one of the two is used, once.
`stream.usage()` counts tokens when they have come. Events are in `turn_events`, offered tools in `tools/offer`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from typing import Any

from starlette.requests import Request

from samebits.core.errors import BadInput
from samebits.engine.reasoning import opens_reasoning
from samebits.loaders.chat import FROZEN_TIME, PromptEnd
from samebits.server.answers.engine_streams import Started, merged, start_streams, usage, while_connected
from samebits.server.bodies.openai import ALL_TOKENS, Sampling
from samebits.server.bodies.prompts import last_tokens, short_enough
from samebits.server.bodies.reading import sampling_params
from samebits.server.engines import Answering
from samebits.server.http.errors import of_field
from samebits.server.http.threads import off_loop
from samebits.server.limits import CHAT_TOKENS
from samebits.server.model import ServedModel
from samebits.server.tools.grammar import answer_format
from samebits.server.tools.offer import NOTHING, Offer
from samebits.server.turns.events import ChoiceAnswer, ReasoningDelta, Step
from samebits.server.turns.model_forms import call_ids
from samebits.server.turns.reader import TurnReader


@dataclass(frozen=True)
class Turn:
    """What a client asks for.

    messages    as chat templates take them: {"role", "content"} with roles system, user, assistant and tool; an
                assistant's may have "tool_calls" [{"id", "type", "function": {"name", "arguments"}}], whose arguments
                are an object or a text, and "reasoning_content"; a tool's has "tool_call_id"
    sampling    everything about how tokens are drawn, and the format that the text is held to
    max_tokens  of an answer; None for CHAT_TOKENS, and ALL_TOKENS for as many as the context holds
    logprobs    alternatives to name for each token; None for no log-probabilities at all
    variables   of the model's template, such as reasoning_effort
    fields      the field that each variable came in, for errors; it has the variable's name if absent
    ending      what stands behind the messages
    raw         a text that is continued as it is, in place of messages
    param       the field that the messages came in, for errors
    """

    messages: list[dict[str, Any]]
    sampling: Sampling
    max_tokens: int | None = None
    logprobs: int | None = None
    offer: Offer = NOTHING
    variables: dict[str, Any] = field(default_factory=dict)
    fields: dict[str, str] = field(default_factory=dict)
    ending: PromptEnd = PromptEnd.ANSWER
    raw: str | None = None
    param: str = "messages"


class TurnStream:
    """A turn under way."""

    def __init__(self, request: Request, started: Started, readers: list[TurnReader]) -> None:
        self._request, self._started, self._readers = request, started, readers
        self.num_reasoning_tokens = 0  # that brought reasoning, so far

    @property
    def job(self) -> Answering:
        """The engine's side: prompt, parameters with their seed, and what was found of the prompt."""
        return self._started.streams[0].job

    @property
    def num_cached_tokens(self) -> int:
        """Of the prompt, that did not have to be computed."""
        return self.job.num_cached_tokens

    @property
    def num_choices(self) -> int:
        return len(self._readers)

    async def steps(self) -> AsyncIterator[Step]:
        """Events of all choices as they come, one step per piece of the engine's."""
        async for _, choice, piece in merged(self._started):
            reader = self._readers[choice]
            step = Step(choice, tuple(reader.push(piece)), piece, reader.is_answer)
            self.num_reasoning_tokens += any(isinstance(event, ReasoningDelta) for event in step.events)
            yield step

    async def answers(self) -> list[ChoiceAnswer]:
        """Every choice, when all are finished; a client that goes away ends them."""

        async def wait() -> list[ChoiceAnswer]:
            answers = [ChoiceAnswer() for _ in self._readers]
            async for step in self.steps():
                answers[step.choice].take(step)
            for answer, completion in zip(answers, self._started.streams[0].job.completions(), strict=True):
                answer.completion = completion
            return answers

        return await while_connected(self._request, wait())

    def usage(self) -> dict[str, int]:
        """prompt_tokens, completion_tokens and total_tokens, so far."""
        return usage(self._started.streams)


async def start_turn(request: Request, served: ServedModel, turn: Turn) -> TurnStream:
    """The turn under way; ApiError or BadInput where it cannot be."""
    forms, offer, tokenizer = served.forms, turn.offer, served.llm.tokenizer
    # It waits for the template's process, behind other clients' conversations.
    prompt = await while_connected(request, asyncio.to_thread(_prompt, served, turn))
    max_tokens = _max_tokens(turn, max(1, served.llm.max_len - len(prompt)))
    params = sampling_params(
        turn.sampling,
        served.limits,
        max_tokens,
        turn.logprobs,
        served.is_deterministic,
        served.llm.sampling_defaults,
    )
    params = replace(params, shown_ids=forms.shown_ids(offer))
    is_open = forms.marks is not None and opens_reasoning(prompt, tokenizer, forms.marks)
    asked = turn.sampling.output_format
    told = (offer, forms.call_form, asked, forms.marks, is_open, tokenizer.control_id)
    wanted = await off_loop(answer_format, request.state.body_bytes, *told)  # schemas of many tools take their time
    started = await start_streams(request, served, [prompt], params, turn.param, turn.sampling, wanted)
    begins_open = is_open and (wanted is None or wanted is not asked)  # a format that leaves no room for reasoning
    job = started.streams[0].job
    return TurnStream(request, started, [forms.reader(offer, begins_open, call_ids(job, i)) for i in range(params.n)])


def _max_tokens(turn: Turn, num_left: int) -> int:
    """Return the most tokens of an answer, `num_left` being what the context holds behind the prompt."""
    if turn.max_tokens is None:
        return min(num_left, max(CHAT_TOKENS, turn.sampling.min_tokens or 0))
    return num_left if turn.max_tokens == ALL_TOKENS else turn.max_tokens


def _prompt(served: ServedModel, turn: Turn) -> list[int]:
    """Return the turn's token ids. Raise ApiError for too many of them, or for a variable that the template ignores."""
    if turn.raw is not None:
        return last_tokens(short_enough(turn.param, served.llm.encode, turn.raw), turn.sampling, served)
    now = FROZEN_TIME if served.is_deterministic else None
    messages = served.forms.messages(turn.messages, turn.offer)
    tools = [t.as_dict() for t in turn.offer.callable_tools] if served.forms.knows_tools else None
    args = (messages, now, turn.variables, tools or None, turn.ending)
    try:
        prompt = short_enough(turn.param, served.llm.chat_prompt, *args)
    except BadInput as error:
        if error.argument in turn.variables:
            raise of_field(error, turn.fields.get(error.argument, error.argument)) from None
        raise
    return last_tokens(prompt, turn.sampling, served)
