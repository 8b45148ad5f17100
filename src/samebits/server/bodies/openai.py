"""The bodies of OpenAI's routes, with what other servers added to them; `fields.py` has what is not honoured."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AliasChoices, Field, PlainValidator, model_validator

from samebits.core.request_limits import MAX_BANNED_WORDS, MAX_BIASES, MAX_LISTED_IDS, MAX_STOP_CHARS
from samebits.core.sampling_defaults import BOUNDS
from samebits.server.bodies.base import Body, Few, Off, Text, says
from samebits.server.grammar.constraints import Choices, ResponseFormat, Schema, StructuredOutputs, constraint, only_one
from samebits.server.grammar.output_format import OutputFormat
from samebits.server.http.counting import END_OF_IDS, at_most, check_id_list, check_prompts, few_parts
from samebits.server.http.errors import bad_request
from samebits.server.limits import CHAT_TOKENS, MAX_CALLS, MAX_TOOLS, MAX_TOP_LOGPROBS
from samebits.server.tools.offer import Offer, Tool, make_offer

Stop = Annotated[str, Field(min_length=1, max_length=MAX_STOP_CHARS)]
Seed = Annotated[int, Field(ge=-(1 << 63), lt=1 << 64)]
Bias = dict[Annotated[str, Field(pattern=r"^(0|[1-9][0-9]{0,8})$")], Annotated[float, Field(ge=-100, le=100)]]
_Ids = list[Annotated[int, Field(ge=0, lt=END_OF_IDS)]]
TokenIds = Annotated[_Ids, PlainValidator(check_id_list, json_schema_input_type=_Ids)]
ListedIds = Annotated[TokenIds, at_most(MAX_LISTED_IDS)]
_Prompts = str | list[str] | _Ids | list[_Ids]
Prompts = Annotated[_Prompts, PlainValidator(check_prompts, json_schema_input_type=_Prompts)]
Count = Annotated[int, Field(ge=0, lt=1 << 20)]
CountOrAll = Annotated[int, Field(ge=-1, lt=1 << 20)]
TopCount = Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)]
MIN_PENALTY = BOUNDS["repetition_penalty"][0]
ALL_TOKENS = -1  # as max_tokens: as many as the context holds

FORMS = {  # fields that hold an answer to a form of some kind
    "json_schema": "json_schema",
    "guided_json": "json_schema",
    "regex": "regex",
    "guided_regex": "regex",
    "guided_choice": "choice",
    "grammar": "grammar",
    "guided_grammar": "grammar",
    "ebnf": "grammar",
}


class StreamOptions(Body, extra="forbid"):
    include_usage: bool | None = None
    include_obfuscation: bool | None = None
    continuous_usage_stats: bool | None = None

    @model_validator(mode="after")
    def _check_usage(self) -> StreamOptions:
        """Raise ApiError if usage is asked for in every chunk and in none."""
        if self.continuous_usage_stats and self.include_usage is False:
            needed = "include_usage to be true or absent"
            raise bad_request("stream_options.continuous_usage_stats", "true", needed)
        return self


class Sampling(Body):
    """What completions and chat share."""

    model: Text | None = says("the model's name; it may be left out")
    n: Annotated[int, Field(ge=1, le=128)] | None = says("answers per prompt")
    seed: Seed | None = says("of the draws; without one, or with -1, one is drawn and comes back")
    stop: Stop | Few[Stop] | None = says("texts that end the answer")
    stop_token_ids: ListedIds | None = says("tokens that end the answer")
    include_stop_str_in_output: bool | None = says(
        "whether what ended the answer is part of it", "include_stop_str_in_output", "no_stop_trim"
    )
    stream: bool | None = says("the answer as it comes")
    stream_options: StreamOptions | None = says(
        "`include_usage` for a last chunk with the number of tokens; `continuous_usage_stats` also for the number of "
        "tokens of its choice so far in every chunk"
    )
    min_tokens: Count | None = says(
        "tokens before which an answer does not end of itself", "min_tokens", "min_new_tokens"
    )
    temperature: Annotated[float, Field(ge=0, le=2)] | None = says(
        "0 takes the likeliest token always; the model's own if absent, as for the next three and `repetition_penalty`"
    )
    top_p: Annotated[float, Field(gt=0, le=1)] | None = says("draw from the likeliest that hold this probability")
    top_k: Annotated[int, Field(ge=-1, lt=1 << 30)] | None = says("draw from so many; 0 or -1 for all")
    min_p: Annotated[float, Field(ge=0, le=1)] | None = says("draw from those of this share of the likeliest's")
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = says("on tokens that have occurred")
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = says("on tokens, each time they have occurred")
    repetition_penalty: Annotated[float, Field(ge=MIN_PENALTY, le=10)] | None = says(
        "a factor on tokens that have occurred", "repetition_penalty", "repeat_penalty"
    )
    logit_bias: Annotated[Bias, at_most(MAX_BIASES), Field(max_length=MAX_BIASES)] | None = says("added to logits")
    allowed_token_ids: ListedIds | None = says("the only tokens that may be drawn, the end of a text among them or not")
    bad_words: Annotated[Few[Stop], at_most(MAX_BANNED_WORDS), Field(max_length=MAX_BANNED_WORDS)] | None = says(
        "words that are not written, as far as they are spelled in their usual tokens"
    )
    ignore_eos: bool | None = says("whether an answer goes on after the end of a text")
    skip_special_tokens: bool | None = says("whether tokens that are no text are left out of it, as they are if absent")
    priority: Annotated[int, Field(ge=-100, le=100)] | None = says("smaller is served sooner")
    cache_salt: Text | None = says("requests share kept prompts only with those of the same salt")
    truncate_prompt_tokens: Annotated[int, Field(ge=-1, lt=1 << 20)] | None = says(
        "keep this many of a prompt's last tokens; -1 for as many as the context holds"
    )
    prompt_logprobs: TopCount | None = says("log-probabilities of the prompt's tokens too; not in streams")
    logits_sha256: bool | None = says("a hash over the logits of all drawn tokens, per choice")
    receipt: bool | None = says("a receipt per choice, with which `samebits replay` checks it; in a stream at its end")
    return_token_ids: bool | None = says("`token_ids` of the answer, per choice; in a stream with each token's chunk")
    response_format: ResponseFormat | None = says(
        "`json_object`, `json_schema`, `regex` with a `pattern`, or `grammar` with a `grammar`"
    )
    structured_outputs: StructuredOutputs | None = says("`json`, `regex`, `choice`, `grammar` or `json_object`")
    json_schema: Schema | None = says("a JSON schema that the answer fits")
    guided_json: Schema | None = says("the same")
    regex: str | None = says("a regular expression that the answer matches")
    guided_regex: str | None = says("the same")
    guided_choice: Choices | None = says("texts of which the answer is one")
    grammar: str | None = says("a grammar in GBNF or in llguidance's Lark")
    guided_grammar: str | None = says("the same")
    ebnf: str | None = says("the same")

    @property
    def output_format(self) -> OutputFormat | None:
        """What the answer is held to; ApiError for two forms at once."""
        found = [self.response_format.wanted] if self.response_format and self.response_format.wanted else []
        if self.structured_outputs is not None:
            found += self.structured_outputs.wanted("structured_outputs")
        for name, kind in FORMS.items():
            found += constraint(name, kind, getattr(self, name) or None)
        return only_one(found)

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
            raise bad_request(
                "messages.tool_calls", f"part of a message of role {self.role}", "part of one of role assistant"
            )
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
    messages: Annotated[Few[Message], few_parts, Field(min_length=1, description="the conversation")]
    max_tokens: CountOrAll | None = says(
        f"the most tokens in an answer, 0 for none, -1 for as many as the context holds; {CHAT_TOKENS} if absent",
        "max_tokens",
        "max_completion_tokens",
        "n_predict",
    )
    logprobs: bool | None = says("log-probabilities of the answer's tokens")
    top_logprobs: TopCount | None = says("so many alternatives to each of them")
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = says(
        "for templates that name it"
    )
    chat_template_kwargs: dict[str, Any] | None = says(
        "variables of the model's template; one it does not read is refused"
    )
    add_generation_prompt: bool | None = says("whether the template opens the answer, as it does if absent")
    continue_final_message: bool | None = says("the answer goes on from the last message, which is the assistant's")
    add_special_tokens: Off | None = says("a template adds them by itself")
    echo: Off | None = says("the conversation is not part of the answer")
    tools: Annotated[Few[ToolBody], at_most(MAX_TOOLS)] | None = says("functions that the model may call")
    tool_choice: Literal["none", "auto", "required"] | ChosenFunction | None = says(
        "`none`, `auto`, `required`, or the one function to call"
    )
    parallel_tool_calls: bool | None = says("whether an answer may hold several calls")

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
    prompt: Annotated[Prompts, Field(description="a text, token ids, or a list of either")]
    max_tokens: CountOrAll | None = says(
        "the most tokens in an answer, 0 for none, -1 for as many as the context holds; 16 if absent",
        "max_tokens",
        "n_predict",
    )
    logprobs: TopCount | None = says(
        "log-probabilities of the answer's tokens, and so many alternatives", "logprobs", "n_probs"
    )
    echo: bool | None = says("the prompt is part of the answer, and of its log-probabilities")
    best_of: Annotated[int, Field(ge=1, le=128)] | None = says(
        "answers to draw, of which the n likeliest per token come back; not in streams"
    )
    add_special_tokens: bool | None = says("whether the model's own first token is added to a text, as it is if absent")


class EmbeddingBody(Body):
    """`pooling` is ours."""

    input: Prompts
    model: Text | None = None
    encoding_format: Literal["float", "base64"] | None = None
    pooling: Literal["mean", "last"] | None = None


class TokenizeBody(Body):
    """The second names are vLLM's, whose clients count tokens by it."""

    text: str = Field(validation_alias=AliasChoices("text", "prompt"))
    add_special: bool | None = says("", "add_special", "add_special_tokens")
    parse_special: bool | None = None


class DetokenizeBody(Body):
    tokens: TokenIds
