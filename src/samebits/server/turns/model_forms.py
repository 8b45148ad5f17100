"""How a served model talks: the form of its calls, the marks around its reasoning, what its chat template knows."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from samebits.api.texts import Texts
from samebits.core.errors import BadInput, as_given
from samebits.engine.reasoning import (
    NO_REASONING,
    THINK_MARKS,
    ReasoningSplitter,
    ThinkMarks,
    marks_for,
)
from samebits.server.engines import Answering
from samebits.server.http.json_input import ValueBudget, parse_arguments
from samebits.server.tools.form import CallForm
from samebits.server.tools.forms import FORMS, form_for
from samebits.server.tools.in_text import as_text
from samebits.server.tools.offer import Offer
from samebits.server.tools.scanner import CallScanner
from samebits.server.tools.written import WrittenCalls
from samebits.server.turns.reader import TurnReader

AUTO = "auto"
NO_SYSTEM = "System role not supported"  # what the templates of Gemma 1 and 2 say
ID_CHARS, ID_DIGITS = 9, "0123456789abcdefghijklmnopqrstuvwxyz"  # Mistral's templates take ids of this length alone


@dataclass(frozen=True)
class FormChoice:
    """Which forms to read: names of FORMS and THINK_MARKS, "none" for no reasoning, or "auto" for the model's own."""

    tool_form: str = AUTO
    reasoning_form: str = AUTO

    def __post_init__(self) -> None:
        if self.tool_form not in (AUTO, *FORMS):
            raise BadInput("serve", "--tool-form", as_given(self.tool_form), f"auto, {', '.join(FORMS)}")
        if self.reasoning_form not in (AUTO, NO_REASONING, *THINK_MARKS):
            needed = f"auto, {NO_REASONING}, {', '.join(THINK_MARKS)}"
            raise BadInput("serve", "--reasoning-form", as_given(self.reasoning_form), needed)


class ModelForms:
    """The forms of one model."""

    def __init__(self, llm: Texts, choice: FormChoice) -> None:
        template = llm.chat_template.source if llm.chat_template else ""
        for_tools = llm.chat_template.for_tools if llm.chat_template else None
        self._tokenizer = llm.tokenizer
        self.call_form: CallForm = FORMS.get(choice.tool_form) or form_for(
            for_tools.source if for_tools else "", llm.tokenizer
        )
        self.marks: ThinkMarks | None = (
            marks_for(template, llm.tokenizer)
            if choice.reasoning_form == AUTO
            else THINK_MARKS.get(choice.reasoning_form)
        )
        self.knows_tools = for_tools is not None and for_tools.names("tools")
        self._takes_system = NO_SYSTEM not in template
        self._names_thinking = for_tools is not None and for_tools.names("thinking")  # beside calls of tools alone
        message_marks = llm.tokenizer.special.marks
        self._message_ends = frozenset((message_marks.end, message_marks.start) if message_marks else ())

    def messages(self, messages: list[dict[str, Any]], offer: Offer) -> list[dict[str, Any]]:
        """A conversation as the model's template takes it: arguments of calls as objects, results with their names."""
        names: dict[str, str] = {}
        told, budget = [], ValueBudget()
        for message in messages:
            given = dict(message)
            if calls := given.get("tool_calls"):
                given["tool_calls"] = [_with_object(call, budget) for call in calls]
                names |= {call["id"]: call["function"]["name"] for call in calls}
            if given["role"] == "tool" and given.get("tool_call_id") in names:
                given.setdefault("name", names[given["tool_call_id"]])
            if self._names_thinking and given.get("tool_calls") and given.get("reasoning_content"):
                given["thinking"] = given["reasoning_content"]
            told.append(given)
        has_tools = offer.is_open or any(m["role"] == "tool" or "tool_calls" in m for m in told)
        if self.knows_tools or not has_tools:
            return told
        return as_text(told, offer.callable_tools, self._takes_system)

    def shown_ids(self, offer: Offer) -> frozenset[int]:
        """Control tokens that stand for something in the text of an answer."""
        texts = [*(self.call_form.marks if offer.is_open else ())]
        texts += [self.marks.opening, self.marks.closing] if self.marks else []
        ids = (self._tokenizer.control_id(text) for text in texts)
        return frozenset(i for i in ids if i is not None)

    def reader(self, offer: Offer, is_open: bool, make_id: Callable[[int], str]) -> TurnReader:
        """What reads one choice; `is_open` where its reasoning has begun in the prompt."""
        splitter = ReasoningSplitter(self.marks, is_open) if self.marks else None
        names = frozenset(tool.name for tool in offer.callable_tools)
        kind = WrittenCalls if offer.choice == "required" else CallScanner
        scanner = kind(self.call_form, names) if offer.is_open else None
        return TurnReader(make_id, splitter, scanner, self._message_ends)


def _with_object(call: dict[str, Any], budget: ValueBudget) -> dict[str, Any]:
    """Return the call with its arguments as an object where they are JSON, since templates write them as JSON.

    ApiError if the arguments of all calls together hold more values than a body may.
    """
    function = call["function"]
    arguments = function["arguments"]
    if isinstance(arguments, str):
        with suppress(ValueError):  # what is no JSON stays a text
            arguments = parse_arguments(arguments, budget)
    return {**call, "function": {**function, "arguments": arguments}}


def call_ids(job: Answering, choice: int) -> Callable[[int], str]:
    """Ids for the calls of a choice: the same request with the same seed gives the same."""
    digest = hashlib.sha256(job.prompt.tobytes() + f"{job.params.seed} {choice}".encode()).digest()

    def make(number: int) -> str:
        left = int.from_bytes(hashlib.sha256(digest + bytes([number & 255, number >> 8])).digest()[:8], "little")
        digits = []
        for _ in range(ID_CHARS):
            left, digit = divmod(left, len(ID_DIGITS))
            digits.append(ID_DIGITS[digit])
        return "".join(digits)

    return make
