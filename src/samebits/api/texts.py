"""What a model makes of texts, without its weights: token ids of prompts and of conversations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from samebits.api.requests import Message, messages_of
from samebits.core.errors import BadInput
from samebits.core.sampling_defaults import MODEL, SamplingDefaults
from samebits.loaders.catalog import DEFAULT_MODEL
from samebits.loaders.chat import PromptEnd
from samebits.loaders.tokenizer import TextTooLong

if TYPE_CHECKING:
    from datetime import datetime

    from samebits.loaders.chat import ChatTemplate
    from samebits.loaders.tokenizer import Tokenizer


class Texts:
    """A model's tokenizer, chat template and sampling defaults.

    path         the model's file or folder
    sampling_defaults  values of the sampling fields that requests leave out
    max_len      tokens that a sequence may have, prompt and answer
    vocab_size   tokens that the model has logits for
    """

    path: Path
    tokenizer: Tokenizer
    chat_template: ChatTemplate | None
    sampling_defaults: SamplingDefaults
    max_len: int
    vocab_size: int

    def encode(self, text: str, add_special: bool = True) -> list[int]:
        """A prompt's token ids; TextTooLong, before any work where possible, for more than the context holds."""
        if not isinstance(text, str):
            raise BadInput("encode", "text", type(text).__name__, "a text")
        return self.tokenizer.encode(text, add_special, max_tokens=self.max_len)

    def chat_prompt(
        self,
        messages: str | Message | Sequence[Message],
        now: datetime | None = None,
        variables: Mapping[str, Any] | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        ending: PromptEnd = PromptEnd.ANSWER,
    ) -> list[int]:
        """Messages through the model's own template, as token ids; BadInput if it has none, TextTooLong as `encode`.

        messages    a conversation, one message, or a text, which is what the user says
        now         the time for templates that print it; the current time if absent
        variables   of the template's own, such as `reasoning_effort`; BadInput for one that it does not read
        tools       functions that the model may call, as OpenAI's API has them; BadInput where the template knows none
        ending      whether an answer begins behind them, or the last of them goes on
        """
        messages = messages_of(messages)
        if self.chat_template is None:
            raise BadInput("chat", "chat template", "nothing", "part of the model")
        template = self.chat_template.for_tools if tools else self.chat_template
        if tools and not template.names("tools"):
            raise BadInput("chat", "tools", f"{len(tools)}", "none: the model's chat template does not name them")
        num_chars = sum(len(part) for message in messages for part in message.values() if isinstance(part, str))
        max_bytes, reason = self.tokenizer.max_bytes(self.max_len)
        if num_chars > max_bytes:
            raise TextTooLong("chat", "messages", f"{num_chars} characters", f"at most {max_bytes}{reason}")
        is_continued = ending is PromptEnd.CONTINUED
        render = template.render_to_continue if is_continued else template.render
        options: dict[str, Any] = {} if is_continued else {"add_generation_prompt": ending is PromptEnd.ANSWER}
        text = render(
            messages,
            **options,
            special_tokens=self.tokenizer.special_texts,
            tools=tools,
            variables=variables,
            now=now,
        )
        return self.encode(text, add_special=False)


class FileTexts(Texts):
    """Texts of a model that runs elsewhere, given by name or path as `LLM` takes it. A missing model is fetched."""

    def __init__(self, model: str | Path = DEFAULT_MODEL, sampling_defaults: str = MODEL) -> None:
        from samebits.loaders.obtain import obtain
        from samebits.models.checkpoint import open_checkpoint

        self.path = obtain(model)
        checkpoint = open_checkpoint(self.path)
        self.tokenizer, self.chat_template = checkpoint.tokenizer(), checkpoint.chat_template()
        self.sampling_defaults = checkpoint.sampling_defaults(sampling_defaults)
        self.max_len, self.vocab_size = checkpoint.config.context_len, checkpoint.config.vocab_size
