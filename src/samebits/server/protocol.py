"""The bodies clients send. Fields of OpenAI's schema are honoured or refused by name, others are ignored and logged."""

from __future__ import annotations

import json
from itertools import islice
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, model_validator

from samebits.server.counting import END_OF_IDS, at_most, bounded_text, check_id_list, check_prompts, few_parts
from samebits.server.errors import bad_request
from samebits.server.limits import (
    MAX_BIASES,
    MAX_CALLS,
    MAX_NAME_CHARS,
    MAX_STOP_CHARS,
    MAX_TOOLS,
    MAX_TOP_LOGPROBS,
)
from samebits.server.output_format import OutputFormat
from samebits.server.tools.offer import Offer, Tool, make_offer

Item = TypeVar("Item")
Text = Annotated[str, Field(max_length=MAX_NAME_CHARS)]
Stop = Annotated[str, Field(min_length=1, max_length=MAX_STOP_CHARS)]
Seed = Annotated[int, Field(ge=-(1 << 63), lt=1 << 64)]
Bias = dict[Annotated[str, Field(pattern=r"^[0-9]{1,9}$")], Annotated[float, Field(ge=-100, le=100)]]
Few = Annotated[list[Item], Field(fail_fast=True)]  # one wrong item is enough: the others are not examined
_Ids = list[Annotated[int, Field(ge=0, lt=END_OF_IDS)]]
TokenIds = Annotated[_Ids, PlainValidator(check_id_list, json_schema_input_type=_Ids)]
_Prompts = str | list[str] | _Ids | list[_Ids]
Prompts = Annotated[_Prompts, PlainValidator(check_prompts, json_schema_input_type=_Prompts)]


class Body(BaseModel):
    """A request. An integer may stand for a float, but not a float for an integer, and text is never converted."""

    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)

    def given(self, name: str, default: Any) -> Any:
        """A field's value, the default for null."""
        value = getattr(self, name)
        return default if value is None else value


class StreamOptions(Body):
    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class JsonSchema(Body):
    name: Text | None = None
    description: str | None = None
    schema_: dict[str, Any] | None = Field(None, alias="schema")
    strict: bool | None = None


class ResponseFormat(Body):
    """`regex`, with a pattern, is ours."""

    type: Literal["text", "json_object", "json_schema", "regex"]
    json_schema: JsonSchema | None = None
    pattern: str | None = None
    _wanted: OutputFormat | None = None

    @property
    def wanted(self) -> OutputFormat | None:
        """None for plain text."""
        return self._wanted

    @model_validator(mode="after")
    def _take_wanted(self) -> ResponseFormat:
        """ApiError where parts are missing or too long."""
        if self.type == "regex":
            if not self.pattern:
                raise bad_request("response_format.pattern", "nothing", "a regular expression")
            self._wanted = OutputFormat("regex", bounded_text([self.pattern]))
        elif self.type == "json_object":
            self._wanted = OutputFormat("json_schema", '{"type":"object"}')
        elif self.type == "json_schema":
            if self.json_schema is None or self.json_schema.schema_ is None:
                raise bad_request("response_format.json_schema", "nothing", "an object with a schema")
            source = bounded_text(json.JSONEncoder(separators=(",", ":")).iterencode(self.json_schema.schema_))
            self._wanted = OutputFormat("json_schema", source)
        return self


class Sampling(Body):
    """What completions and chat share. top_k, min_p, repetition_penalty, ignore_eos and priority are ours."""

    model: Text | None = None
    n: Annotated[int, Field(ge=1, le=128)] | None = None
    seed: Seed | None = None
    stop: Stop | Few[Stop] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    logit_bias: Annotated[Bias, at_most(MAX_BIASES), Field(max_length=MAX_BIASES)] | None = None
    user: str | None = None
    top_k: Annotated[int, Field(ge=0, lt=1 << 30)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Field(gt=0, le=10)] | None = None
    ignore_eos: bool | None = None
    priority: Annotated[int, Field(ge=-100, le=100)] | None = None
    response_format: ResponseFormat | None = None

    @property
    def output_format(self) -> OutputFormat | None:
        """What the answer is held to."""
        return self.response_format.wanted if self.response_format else None

    def stops(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())


class Part(Body):
    """A part of a message's content; only text for now."""

    type: Literal["text"]
    text: str


class CalledFunction(Body):
    name: Text
    arguments: str


class MessageCall(Body):
    """A call that a model made earlier."""

    id: Text
    type: Literal["function"] = "function"
    function: CalledFunction


class Message(Body):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | Annotated[Few[Part], Field(min_length=1)] | None = None
    name: Text | None = None
    tool_calls: Annotated[Few[MessageCall], at_most(MAX_CALLS)] | None = None
    tool_call_id: Text | None = None
    reasoning_content: str | None = None

    @model_validator(mode="after")
    def _check_parts(self) -> Message:
        """ApiError where a message lacks what its role needs."""
        if self.tool_calls and self.role != "assistant":
            raise bad_request("messages.tool_calls", f"them in a message of role {self.role}", "role assistant")
        if self.content is None and not self.tool_calls:
            raise bad_request("messages.content", "null", "text, or tool_calls in an assistant's message")
        if self.role == "tool" and self.tool_call_id is None:
            raise bad_request("messages.tool_call_id", "nothing", "the id of the call that a tool's message answers")
        return self

    def as_dict(self) -> dict[str, Any]:
        """As chat templates take it."""
        content = self.content or ""
        told: dict[str, Any] = {
            "role": "system" if self.role == "developer" else self.role,
            "content": content if isinstance(content, str) else "".join(p.text for p in content),
        }
        if self.tool_calls:
            told["tool_calls"] = [call.model_dump() for call in self.tool_calls]
        if self.tool_call_id is not None:
            told["tool_call_id"] = self.tool_call_id
        if self.reasoning_content:
            told["reasoning_content"] = self.reasoning_content
        return told


class ToolFunction(Body):
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.:/-]{1,128}$")]
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None

    @model_validator(mode="after")
    def _check_parameters(self) -> ToolFunction:
        kind = (self.parameters or {}).get("type", "object")
        if kind != "object":
            raise bad_request("tools.function.parameters", f"type {kind}", "the JSON schema of an object")
        return self


class ToolBody(Body):
    type: Literal["function"]
    function: ToolFunction


class ChosenName(Body):
    name: Text


class ChosenFunction(Body):
    type: Literal["function"]
    function: ChosenName


class ChatBody(Sampling):
    messages: Annotated[Few[Message], few_parts, Field(min_length=1)]
    max_tokens: Annotated[int, Field(ge=1, lt=1 << 20)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1, lt=1 << 20)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high"] | None = None
    tools: Annotated[Few[ToolBody], at_most(MAX_TOOLS)] | None = None
    tool_choice: Literal["none", "auto", "required"] | ChosenFunction | None = None
    parallel_tool_calls: bool | None = None

    @property
    def offer(self) -> Offer:
        """The functions that the model may call; ApiError where the choice contradicts them.

        A choice that forces a call asks for one, unless parallel calls are asked for by name: a small model that may
        write another call does so, over and over.
        """
        tools = tuple(
            Tool(f.name, f.description, f.parameters, bool(f.strict)) for f in (t.function for t in self.tools or ())
        )
        choice = self.given("tool_choice", "auto")
        is_parallel = self.given("parallel_tool_calls", choice in ("none", "auto"))
        if isinstance(choice, ChosenFunction):
            return make_offer(tools, "required", choice.function.name, is_parallel)
        return make_offer(tools, choice, None, is_parallel)


class CompletionBody(Sampling):
    prompt: Prompts
    max_tokens: Annotated[int, Field(ge=1, lt=1 << 20)] | None = None
    logprobs: Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)] | None = None


class EmbeddingBody(Body):
    """`pooling` is ours."""

    input: Prompts
    model: Text | None = None
    encoding_format: Literal["float", "base64"] | None = None
    pooling: Literal["mean", "last"] | None = None
    user: str | None = None


class TokenizeBody(Body):
    text: str
    add_special: bool = True
    parse_special: bool = True


class DetokenizeBody(Body):
    tokens: TokenIds


# Fields of OpenAI's schema that are refused, except with the values that ask for nothing.
REFUSED: dict[type[Body], dict[str, tuple[Any, ...]]] = {
    ChatBody: {
        "functions": ([],),
        "function_call": ("none", "auto"),
        "modalities": (["text"],),
        "audio": (),
        "prediction": (),
        "verbosity": ("medium",),
        "web_search_options": (),
        "store": (False,),
        "moderation": (),
    },
    CompletionBody: {"suffix": ("",), "echo": (False,), "best_of": (1,)},
    EmbeddingBody: {"dimensions": ()},
}
# Fields that are accepted and have no effect.
ACCEPTED = {"metadata", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention"}


def check_refused(kind: type[Body], body: dict[str, Any]) -> None:
    """ApiError for a field that is known and not supported."""
    for name, harmless in REFUSED.get(kind, {}).items():
        value = body.get(name)
        if value is not None and not any(type(value) is type(h) and value == h for h in harmless):
            raise bad_request(name, "a value", "nothing: it is not supported yet", "unsupported_parameter")


def unknown_fields(kind: type[Body], body: dict[str, Any]) -> list[str]:
    """Names that neither OpenAI's schema nor ours has; the first few, cut short."""
    known = {f.alias or name for name, f in kind.model_fields.items()} | REFUSED.get(kind, {}).keys() | ACCEPTED
    return [name[:40] for name in islice((n for n in body if n not in known), 10)]
