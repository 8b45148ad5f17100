"""The body of /v1/responses, and its conversation as chat templates take one."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, PrivateAttr, model_validator

from samebits.server.bodies.base import Body, Few, Refused, Text, says
from samebits.server.bodies.openai import Count, TopCount
from samebits.server.grammar.constraints import constraint, only_one, schema_format
from samebits.server.grammar.output_format import OutputFormat
from samebits.server.http.counting import at_most
from samebits.server.http.errors import bad_request
from samebits.server.limits import CHAT_TOKENS, MAX_MESSAGES, MAX_PARTS, MAX_TOOLS
from samebits.server.protocols.turn_body import TurnBody
from samebits.server.tools.offer import Offer, Tool, make_offer

LOGPROBS = "message.output_text.logprobs"
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


class InputPart(Body):
    type: Literal["input_text", "output_text", "text", "reasoning_text", "summary_text"]
    text: str


class InputItem(Body):
    """A message, a call that was made, what it gave, or reasoning; which, its type says."""

    type: Literal["message", "function_call", "function_call_output", "reasoning"] = "message"
    role: Literal["user", "assistant", "system", "developer"] | None = None
    content: str | Annotated[Few[InputPart], at_most(MAX_PARTS)] | None = None
    call_id: Text | None = None
    name: Text | None = None
    arguments: str | None = None
    output: str | Annotated[Few[InputPart], at_most(MAX_PARTS)] | None = None
    encrypted_content: None = None

    def need(self, at: int, *names: str) -> None:
        """ApiError where a field that this type has is missing."""
        for name in names:
            if getattr(self, name) is None:
                raise bad_request(f"input.{at}.{name}", "nothing", f"a value, for type {self.type}")


class TextFormat(Body, extra="forbid"):
    type: Literal["text", "json_object", "json_schema"]
    name: Text | None = None
    description: str | None = None
    schema_: dict[str, Any] | None = Field(None, alias="schema")
    strict: bool | None = None


class TextOptions(Body, extra="forbid"):
    format: TextFormat | None = None
    verbosity: Literal["medium"] | None = None


class Reasoning(Body, extra="forbid"):
    effort: Effort | None = None
    summary: Literal["auto"] | None = None
    generate_summary: Literal["auto"] | None = None


class FunctionTool(Body):
    type: Literal["function"]
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.:/-]{1,128}$")]
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class ChosenTool(Body):
    type: Literal["function"]
    name: Text


class ResponsesBody(TurnBody):
    input: Annotated[
        str | Annotated[Few[InputItem], at_most(MAX_MESSAGES), Field(min_length=1)],
        Field(description="a text, or items: messages, calls, what they gave, reasoning"),
    ]
    instructions: str | None = says("a message of the system's before all others")
    max_output_tokens: Count | None = says(f"the most tokens in an answer; {CHAT_TOKENS} if absent")
    text: TextOptions | None = says("`format`: `json_object`, or `json_schema` with a `schema`")
    reasoning: Reasoning | None = says("`effort`, for templates that name it")
    tools: Annotated[Few[FunctionTool], at_most(MAX_TOOLS)] | None = says("functions that the model may call")
    tool_choice: Literal["none", "auto", "required"] | ChosenTool | None = says("whether it may, must, and which")
    parallel_tool_calls: bool | None = says("whether an answer may hold several calls")
    top_logprobs: TopCount | None = says("so many alternatives to each token, with `include`")
    include: Annotated[list[Literal["message.output_text.logprobs"]], at_most(8)] | None = says(
        "`message.output_text.logprobs` for log-probabilities"
    )

    refused: ClassVar[dict[str, Refused]] = {
        "store": Refused("answers that are kept", (False,)),
        "background": Refused("answers to be fetched later", (False,)),
        "previous_response_id": Refused("an answer that was kept; send the conversation as `input`"),
        "conversation": Refused("a conversation that was kept; send it as `input`"),
        "truncation": Refused("messages left out where the context is full", ("disabled",)),
        "max_tool_calls": Refused("tools that the server calls"),
        "prompt": Refused("a template that is kept"),
        "context_management": Refused("messages that are summarized"),
        "moderation": Refused("a judgement of the answer"),
        "image": Refused("pictures"),
        "access_programs": Refused("programs of the server's"),
    }
    accepted: ClassVar[dict[str, str]] = {"prompt_cache_options": "kept prompts change no bit"}
    _told: list[dict[str, Any]] = PrivateAttr(default_factory=list)

    @property
    def output_format(self) -> OutputFormat | None:
        found = [wanted] if (wanted := super().output_format) else []
        form = self.text.format if self.text else None
        if form is not None and form.type == "json_object":
            found += constraint("text.format", "json_schema", {"type": "object"})
        elif form is not None and form.type == "json_schema":
            if form.schema_ is None:
                raise bad_request("text.format.schema", "nothing", "a JSON schema")
            found.append(schema_format("text.format", form.schema_))
        return only_one(found)

    @property
    def offer(self) -> Offer:
        """The functions that the model may call; ApiError where the choice contradicts them."""
        tools = tuple(Tool(t.name, t.description, t.parameters, bool(t.strict)) for t in self.tools or ())
        choice = self.given("tool_choice", "auto")
        is_parallel = self.given("parallel_tool_calls", choice in ("none", "auto"))
        if isinstance(choice, ChosenTool):
            return make_offer(tools, "required", choice.name, is_parallel)
        return make_offer(tools, choice, None, is_parallel)

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The conversation."""
        return self._told

    @model_validator(mode="after")
    def _tell(self) -> ResponsesBody:
        """ApiError for an item that lacks a part."""
        self._told = self._conversation()
        return self

    def _conversation(self) -> list[dict[str, Any]]:
        told: list[dict[str, Any]] = []
        if self.instructions:
            told.append({"role": "system", "content": self.instructions})
        if isinstance(self.input, str):
            return [*told, {"role": "user", "content": self.input}]
        reasoning = ""
        for at, item in enumerate(self.input):
            if item.type == "reasoning":
                reasoning += _text(item.content or "")
            elif item.type == "function_call_output":
                item.need(at, "call_id", "output")
                told.append({"role": "tool", "tool_call_id": item.call_id, "content": _text(item.output or "")})
            else:
                message = _assistant_call(item, at, told) if item.type == "function_call" else _message(item, at)
                if reasoning and message["role"] == "assistant":
                    message["reasoning_content"], reasoning = reasoning, ""
                if not told or message is not told[-1]:
                    told.append(message)
        return told


def _text(content: str | list[InputPart]) -> str:
    return content if isinstance(content, str) else "".join(part.text for part in content)


def _message(item: InputItem, at: int) -> dict[str, Any]:
    item.need(at, "role", "content")
    role = "system" if item.role == "developer" else item.role
    return {"role": role, "content": _text(item.content or "")}


def _assistant_call(item: InputItem, at: int, told: list[dict[str, Any]]) -> dict[str, Any]:
    """The assistant's message with this call: the last one where that is the assistant's, or a new one."""
    item.need(at, "call_id", "name", "arguments")
    call = {"id": item.call_id, "type": "function", "function": {"name": item.name, "arguments": item.arguments}}
    message: dict[str, Any] = {"role": "assistant", "content": ""}
    if told and told[-1]["role"] == "assistant":
        message = told[-1]
    message.setdefault("tool_calls", []).append(call)
    return message
