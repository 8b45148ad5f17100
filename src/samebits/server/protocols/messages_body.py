"""The body of /v1/messages, and its conversation as chat templates take one."""

from __future__ import annotations

import json
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from samebits.server.bodies.base import Body, Few, Refused, Text, says
from samebits.server.bodies.openai import Count, Stop
from samebits.server.grammar.constraints import only_one, schema_format
from samebits.server.grammar.output_format import OutputFormat
from samebits.server.http.counting import at_most, few_parts
from samebits.server.http.errors import bad_request
from samebits.server.limits import MAX_PARTS, MAX_TOOLS
from samebits.server.protocols.turn_body import TurnBody
from samebits.server.tools.offer import Offer, Tool, make_offer

Effort = Literal["low", "medium", "high", "xhigh", "max"]


class TextBlock(Body):
    type: Literal["text"]
    text: str


class ContentBlock(Body):
    """Text, a call, what it gave, or reasoning; which, its type says. Reasoning that is hidden is left out."""

    type: Literal["text", "tool_use", "tool_result", "thinking", "redacted_thinking"]
    text: str | None = None
    id: Text | None = None
    name: Text | None = None
    input: dict[str, Any] | None = None
    tool_use_id: Text | None = None
    content: str | Annotated[Few[TextBlock], at_most(MAX_PARTS)] | None = None
    is_error: bool | None = None
    thinking: str | None = None


class TurnMessage(Body):
    role: Literal["user", "assistant", "system"]
    content: str | Annotated[Few[ContentBlock], at_most(MAX_PARTS)]


class CustomTool(Body):
    type: Literal["custom"] | None = None
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.:/-]{1,128}$")]
    description: str | None = None
    input_schema: dict[str, Any]
    strict: bool | None = None


class ToolChoice(Body):
    type: Literal["auto", "any", "tool", "none"]
    name: Text | None = None
    disable_parallel_tool_use: bool | None = None


class Thinking(Body):
    """A budget would have to be kept, and cannot be: reasoning is on or off."""

    type: Literal["disabled", "adaptive"]


class OutputSchema(Body, extra="forbid"):
    type: Literal["json_schema"]
    schema_: dict[str, Any] = Field(alias="schema")


class OutputConfig(Body, extra="forbid"):
    format: OutputSchema | None = None
    effort: Effort | None = None


class MessagesBody(TurnBody):
    messages: Annotated[Few[TurnMessage], few_parts, Field(min_length=1)]
    max_tokens: Annotated[Count, Field(description="the most tokens in an answer")]
    system: str | Annotated[Few[TextBlock], at_most(MAX_PARTS)] | None = says("a message of the system's")
    stop_sequences: Annotated[list[Stop], at_most(1024)] | None = says("texts that end the answer")
    tools: Annotated[Few[CustomTool], at_most(MAX_TOOLS)] | None = says("functions that the model may call")
    tool_choice: ToolChoice | None = says("`auto`, `any`, `tool` with a `name`, or `none`")
    thinking: Thinking | None = says(
        "`adaptive`, as the model does by itself, or `disabled` where it can be turned off"
    )
    output_config: OutputConfig | None = says("`format` with a JSON schema; `effort`, for templates that name it")

    refused: ClassVar[dict[str, Refused]] = {
        "container": Refused("a machine for tools"),
        "mcp_servers": Refused("tools of other servers", ([],)),
        "context_management": Refused("messages that are summarized"),
        "speed": Refused("a faster model", ("standard",)),
        "diagnostics": Refused("figures of the request"),
    }
    accepted: ClassVar[dict[str, str]] = {
        "cache_control": "kept prompts change no bit",
        "inference_geo": "there is one place",
        "user_profile_id": "who asks",
        "workspace_id": "who asks",
    }

    def stops(self) -> tuple[str, ...]:
        return (*super().stops(), *(self.stop_sequences or ()))

    @property
    def output_format(self) -> OutputFormat | None:
        found = [wanted] if (wanted := super().output_format) else []
        if self.output_config and self.output_config.format:
            found.append(schema_format("output_config.format", self.output_config.format.schema_))
        return only_one(found)

    @property
    def offer(self) -> Offer:
        """The functions that the model may call; ApiError where the choice contradicts them."""
        tools = tuple(Tool(t.name, t.description, t.input_schema, bool(t.strict)) for t in self.tools or ())
        chosen = self.tool_choice or ToolChoice(type="auto")
        if chosen.type == "tool" and chosen.name is None:
            raise bad_request("tool_choice.name", "nothing", "the tool to use")
        is_forced = chosen.type in ("any", "tool")
        is_parallel = not self.given_choice("disable_parallel_tool_use", is_forced)
        choice: Literal["none", "auto", "required"] = "none" if chosen.type == "none" else "auto"
        return make_offer(tools, "required" if is_forced else choice, chosen.name, is_parallel)

    def given_choice(self, name: str, default: Any) -> Any:
        return self.tool_choice.given(name, default) if self.tool_choice else default

    def conversation(self) -> list[dict[str, Any]]:
        """The messages; ApiError for a block that lacks a part."""
        told: list[dict[str, Any]] = []
        if self.system:
            told.append({"role": "system", "content": _text(self.system)})
        for at, message in enumerate(self.messages):
            if isinstance(message.content, str):
                told.append({"role": message.role, "content": message.content})
            else:
                told += _messages(message.role, message.content, f"messages.{at}.content")
        return told


def _text(content: str | list[TextBlock]) -> str:
    return content if isinstance(content, str) else "".join(block.text for block in content)


def _result(block: ContentBlock) -> str:
    """Return what a tool gave. Templates have no place for `is_error`, so the text says it."""
    text = _text(block.content or "")
    if not block.is_error:
        return text
    return f"Error: {text}" if text else "Error"


def _needed(block: ContentBlock, where: str, *names: str) -> list[Any]:
    for name in names:
        if getattr(block, name) is None:
            raise bad_request(f"{where}.{name}", "nothing", f"a value, for type {block.type}")
    return [getattr(block, name) for name in names]


def _messages(role: str, blocks: list[ContentBlock], where: str) -> list[dict[str, Any]]:
    """One message of blocks: what tools gave, each a message, and then the rest of it."""
    results: list[dict[str, Any]] = []
    message: dict[str, Any] = {"role": role, "content": ""}
    texts, thoughts = list[str](), list[str]()  # joined once: each of thousands of blocks would copy all before it
    for at, block in enumerate(blocks):
        place = f"{where}.{at}"
        if block.type == "text":
            texts += _needed(block, place, "text")
        elif block.type == "tool_use":
            call_id, name, given = _needed(block, place, "id", "name", "input")
            call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": json.dumps(given)}}
            message.setdefault("tool_calls", []).append(call)
        elif block.type == "tool_result":
            (call_id,) = _needed(block, place, "tool_use_id")
            results.append({"role": "tool", "tool_call_id": call_id, "content": _result(block)})
        elif block.type == "thinking":
            thoughts += _needed(block, place, "thinking")
    message["content"] = "".join(texts)
    if thoughts:
        message["reasoning_content"] = "".join(thoughts)
    has_more = message["content"] or "tool_calls" in message or not results
    return [*results, message] if has_more else results
