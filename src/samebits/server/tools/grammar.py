"""Grammars that hold a model to the calls that a request allows.

required, a function  calls and nothing else, after the reasoning of a model that reasons
auto                  text or calls as the model likes; a grammar only where a function is strict, calls may not be
                      parallel, or the text is held to a format
"""

from __future__ import annotations

import json
from typing import Any

from samebits.engine.reasoning import ThinkMarks
from samebits.server.grammar.output_format import OutputFormat
from samebits.server.http.counting import bounded_text
from samebits.server.http.errors import bad_request
from samebits.server.tools.form import CallForm
from samebits.server.tools.lark import Control, Rules, part_of
from samebits.server.tools.offer import Offer, Tool
from samebits.server.tools.schemas import closed

MAX_CALLS = 16  # in an answer that a grammar writes: a small model may find no end
SPACING = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}  # nor an end of blanks


def answer_format(
    offer: Offer,
    form: CallForm,
    wanted: OutputFormat | None,
    marks: ThinkMarks | None,
    is_open: bool,
    control: Control,
) -> OutputFormat | None:
    """What an answer is held to; None for nothing.

    wanted   the format of its text
    marks    around the model's reasoning; `is_open` where the prompt ends within it
    """
    rules, is_forced = Rules(control), offer.choice == "required"
    if not offer.is_open:
        if wanted is None or not is_open or wanted.kind == "lark":
            return wanted
        return rules.format(f"{rules.reasoning(marks, is_open)} {part_of(wanted)}", wanted.param)
    if not is_forced and wanted is None and offer.is_parallel and not any(t.is_strict for t in offer.callable_tools):
        return None
    _check_size(offer)
    if is_forced:
        lead = rules.reasoning(marks, is_open) or form.lead(rules)
        return rules.format(f"{lead} {_calls(rules, offer, form)}", "tools")
    if wanted is not None:
        if wanted.kind == "lark":
            raise bad_request(wanted.param, "a grammar beside tools", "no tools, or a JSON schema")
        lead = rules.reasoning(marks, is_open)
        return rules.format(f"{lead} ({part_of(wanted)} | {_calls(rules, offer, form)})", "tools")
    return rules.format(_free(rules, offer, form), "tools")


def _check_size(offer: Offer) -> None:
    """ApiError for schemas that are too long in all, before any work is done on them."""
    encoder = json.JSONEncoder()
    bounded_text((part for tool in offer.callable_tools for part in encoder.iterencode(tool.parameters)), "tools")


def _num_calls(offer: Offer, form: CallForm) -> int:
    return MAX_CALLS if offer.is_parallel and offer.only is None and form.is_parallel else 1


def _calls(rules: Rules, offer: Offer, form: CallForm) -> str:
    """As many calls as are allowed, at least one, and no text."""
    names = []
    for number, tool in enumerate(offer.callable_tools):
        before, after = form.written(tool.name)
        names.append(rules.add(f"call{number}", f"{rules.atoms(before)} {_json(tool, offer)} {rules.atoms(after)}"))
    one, more = f"({' | '.join(names)})", _num_calls(offer, form) - 1
    return f"{one} ({rules.atoms(form.between)} {one}){{0,{more}}}" if more else one


def _free(rules: Rules, offer: Offer, form: CallForm) -> str:
    """Any text, and calls in it."""
    if plain := form.plain(rules):
        return f"{form.lead(rules)} ({plain} | {_calls(rules, offer, form)})"
    names, opener = [], form.openers[0]
    for number, tool in enumerate(offer.callable_tools):
        before, after = form.written(tool.name)
        names.append(rules.add(f"rest{number}", f"{rules.atoms(before[1:])} {_json(tool, offer)} {rules.atoms(after)}"))
    lead, rests, most = rules.up_to("lead", opener), " | ".join(names), _num_calls(offer, form)
    return f"TEXT | {lead} ({rests})" if most == 1 else f"({lead} ({rests})){{0,{most}}} TEXT"


def _json(tool: Tool, offer: Offer) -> str:
    """A call's arguments: as the schema says where they are held to it, else any object."""
    schema: dict[str, Any] = {"type": "object", "x-guidance": SPACING}
    if offer.choice == "required" or tool.is_strict:
        schema |= closed(tool.parameters or {"properties": {}})
    return f"%json {json.dumps(schema)}"
