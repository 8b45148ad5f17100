"""The bodies of Ollama's routes, and what they ask for as turns."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, PrivateAttr, ValidationError, model_validator

from samebits.server.bodies.base import Body, Few, Refused, Text, check_names, says
from samebits.server.bodies.fields import check_fields
from samebits.server.bodies.openai import ALL_TOKENS, CountOrAll, ToolBody, TopCount
from samebits.server.grammar.constraints import constraint, only_one
from samebits.server.grammar.output_format import OutputFormat
from samebits.server.http.counting import at_most, few_parts
from samebits.server.http.errors import bad_request
from samebits.server.http.field_errors import first_refusal
from samebits.server.limits import CHAT_TOKENS, MAX_CALLS, MAX_TOOLS
from samebits.server.protocols.turn_body import TurnBody
from samebits.server.tools.offer import Offer, Tool, make_offer

LOADING = "settings of loading, which the server's flags are here"


class Options(TurnBody):
    """How tokens are drawn, in Ollama's words or in those of /v1/chat/completions."""

    max_tokens: Annotated[int, Field(ge=-2, lt=1 << 20)] | None = says(
        f"the most tokens in an answer, -1 or -2 for as many as the context holds; {CHAT_TOKENS} if absent",
        "max_tokens",
        "num_predict",
    )
    model: None = says("it stands beside `options`")
    stream: None = says("it stands beside `options`")
    stream_options: None = says("streams always tell their usage")
    num_ctx: CountOrAll | None = says("the context that is needed; refused where the server's is shorter")
    _formats: list[OutputFormat] = PrivateAttr(default_factory=list)  # of the body around it
    refused: ClassVar[dict[str, Refused]] = {
        "num_keep": Refused("a prompt that is cut in the middle", (0, -1)),
        "penalize_newline": Refused("penalties that spare line feeds", (True,)),
    }
    accepted: ClassVar[dict[str, str]] = dict.fromkeys(
        [
            "numa",
            "num_batch",
            "num_gpu",
            "main_gpu",
            "low_vram",
            "f16_kv",
            "logits_all",
            "vocab_only",
            "use_mmap",
            "use_mlock",
            "embedding_only",
            "num_thread",
        ],
        LOADING,
    )

    @property
    def output_format(self) -> OutputFormat | None:
        own = super().output_format
        return only_one([*([own] if own else []), *self._formats])


class OllamaCall(Body):
    class Function(Body):
        name: Text
        arguments: dict[str, Any]

    id: Text | None = None
    function: Function


class OllamaMessage(Body):
    role: Literal["system", "user", "assistant", "tool"]
    content: str | None = None
    thinking: str | None = None
    images: Annotated[list[str], Field(max_length=0)] | None = None
    tool_calls: Annotated[Few[OllamaCall], at_most(MAX_CALLS)] | None = None
    tool_name: Text | None = None
    tool_call_id: Text | None = None


class GenerationBody(Body):
    """What chat and generate share."""

    model: Text | None = says("the model's name")
    stream: bool | None = says("the answer as it comes, which it does if absent")
    options: dict[str, Any] | None = says("how tokens are drawn; each option is honoured or refused by name")
    format: Literal["", "json"] | dict[str, Any] | None = says("`json`, or a JSON schema")
    think: bool | Literal["low", "medium", "high"] | None = says(
        "whether the model reasons, where that can be chosen, or how much"
    )
    logprobs: bool | None = says("log-probabilities of the answer's tokens")
    top_logprobs: TopCount | None = says("so many alternatives to each of them")
    logits_sha256: bool | None = says("a hash over the logits of all drawn tokens")
    receipt: bool | None = says("a receipt of the answer, with which `samebits replay` checks it")
    accepted: ClassVar[dict[str, str]] = {"keep_alive": "the model stays as long as the server does"}
    _sampling: Options

    @model_validator(mode="after")
    def _take_options(self) -> GenerationBody:
        """Raise ApiError for an option that is wrong or not honoured."""
        given = {name: value for name, value in (self.options or {}).items() if value is not None}
        check_fields(Options, given, "options.")
        check_names(Options, given)
        beside = {"logits_sha256": self.logits_sha256, "receipt": self.receipt}
        try:
            self._sampling = Options.model_validate({**given, **beside})
        except ValidationError as error:
            name, value, needed = first_refusal(error, Options)
            raise bad_request(f"options.{name}", value, needed, "invalid_value") from None
        schema = {"type": "object"} if self.format == "json" else self.format or None
        self._sampling._formats = constraint("format", "json_schema", schema)
        if self.top_logprobs is not None and not self.logprobs:
            raise bad_request("top_logprobs", self.top_logprobs, "logprobs to be true")
        return self

    def sampling(self, max_len: int) -> Options:
        """The options with the format; ApiError for a context that is longer than there is."""
        if self._sampling.given("num_ctx", 0) > max_len:
            needed = f"at most {max_len}, the server's --context-len"
            raise bad_request("options.num_ctx", self._sampling.num_ctx, needed)
        return self._sampling

    @property
    def num_logprobs(self) -> int | None:
        return self.given("top_logprobs", 0) if self.logprobs else None

    @property
    def max_tokens(self) -> int | None:
        count = self._sampling.max_tokens
        return count if count is None else max(count, ALL_TOKENS)


class OllamaChatBody(GenerationBody):
    messages: Annotated[Few[OllamaMessage], few_parts]
    tools: Annotated[Few[ToolBody], at_most(MAX_TOOLS)] | None = says("functions that the model may call")

    @property
    def offer(self) -> Offer:
        named = (t.function for t in self.tools or ())
        return make_offer(tuple(Tool(f.name, f.description, f.parameters) for f in named), "auto", None, True)

    def conversation(self) -> list[dict[str, Any]]:
        """The messages; results of tools answer the calls before them in order, since they have no ids."""
        told: list[dict[str, Any]] = []
        open_ids: list[str] = []
        for at, message in enumerate(self.messages):
            given: dict[str, Any] = {"role": message.role, "content": message.content or ""}
            if message.thinking:
                given["reasoning_content"] = message.thinking
            if message.tool_calls:
                ids = [call.id or f"call_{at}_{i}" for i, call in enumerate(message.tool_calls)]
                open_ids += ids
                functions = [call.function.model_dump() for call in message.tool_calls]
                given["tool_calls"] = [
                    {"id": i, "type": "function", "function": f} for i, f in zip(ids, functions, strict=True)
                ]
            if message.role == "tool":
                given["tool_call_id"] = message.tool_call_id or (open_ids.pop(0) if open_ids else f"call_{at}")
                given |= {"name": message.tool_name} if message.tool_name else {}
            told.append(given)
        return told


class OllamaGenerateBody(GenerationBody):
    prompt: str | None = says("a message, or with `raw` the text to continue")
    system: str | None = says("a message of the system's")
    raw: bool | None = says("whether the prompt goes to the model as it is")
    refused: ClassVar[dict[str, Refused]] = {
        "suffix": Refused("a text that follows the answer", ("",)),
        "template": Refused("a template of the client's", ("",)),
        "context": Refused("a prompt that goes on from an earlier one", ([],)),
        "images": Refused("pictures", ([],)),
        "width": Refused("pictures"),
        "height": Refused("pictures"),
        "steps": Refused("pictures"),
    }


class ShowBody(Body):
    model: Text | None = says("the model's name", "model", "name")
    verbose: bool | None = says("has no effect")
