"""The form that an answer must have, as OpenAI's `response_format` or vLLM's `structured_outputs` say it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from samebits.core.errors import BadInput
from samebits.core.request_limits import MAX_GRAMMAR_CHARS

if TYPE_CHECKING:  # imported for the first answer with a form
    from samebits.api.texts import Texts
    from samebits.engine.request_options import RequestOptions
    from samebits.engine.sampling import TokenMask
    from samebits.receipts.record import Grammar

ANY_OBJECT = '{"type":"object"}'
NEEDED = (
    '{"type": "json_object"}, {"type": "json_schema", "json_schema": {"schema": {...}}}, {"type": "regex", "pattern": '
    '...}, {"type": "grammar", "grammar": ...}, or one of json, regex, choice and grammar'
)


def grammar_of(where: str, given: Any) -> Grammar | None:
    """Return the grammar of a response format, or None for plain text. Raise BadInput if it is none of NEEDED.

    Accepts OpenAI's dict with a `type`, and a dict with one of vLLM's names: json, regex, choice, grammar, json_object.
    """
    if given is None:
        return None
    if not isinstance(given, Mapping) or not given:
        raise BadInput(where, "response_format", type(given).__name__, NEEDED)
    kind, source = _typed(where, given) if "type" in given else _named(where, given)
    if kind is None:
        return None
    text = source if isinstance(source, str) and kind != "choice" else _as_json(where, source)
    if kind == "choice":
        if not isinstance(source, list) or not source or not all(isinstance(choice, str) for choice in source):
            raise BadInput(where, "response_format", "choices", "a list of texts, at least one")
        kind, text = "lark", "start: " + " | ".join(map(json.dumps, source))
    if not text or len(text) > MAX_GRAMMAR_CHARS:
        raise BadInput(where, "response_format", f"{len(text)} characters", f"1 .. {MAX_GRAMMAR_CHARS}")
    from samebits.receipts.record import Grammar

    return Grammar(kind, text)


def _typed(where: str, given: Mapping[str, Any]) -> tuple[str | None, Any]:
    """Return (kind, source) of OpenAI's form."""
    name = given["type"]
    if name == "text":
        return None, None
    if name == "json_object":
        return "json_schema", ANY_OBJECT
    if name == "json_schema":
        inner = given.get("json_schema", given)
        if isinstance(inner, Mapping) and isinstance(inner.get("schema"), Mapping):
            return "json_schema", inner["schema"]
    elif name == "regex" and isinstance(given.get("pattern"), str):
        return "regex", given["pattern"]
    elif name == "grammar" and isinstance(given.get("grammar"), str):
        return "grammar", given["grammar"]
    raise BadInput(where, "response_format", repr(dict(given))[:100], NEEDED)


def _named(where: str, given: Mapping[str, Any]) -> tuple[str, Any]:
    """Return (kind, source) of vLLM's form, which has exactly one constraint."""
    kinds = {"json": "json_schema", "regex": "regex", "choice": "choice", "grammar": "grammar"}
    stated = {name: value for name, value in given.items() if value is not None and value is not False}
    if set(stated) == {"json_object"}:
        return "json_schema", ANY_OBJECT
    if len(stated) != 1 or not set(stated) <= set(kinds):
        raise BadInput(where, "response_format", repr(dict(given))[:100], NEEDED)
    ((name, value),) = stated.items()
    if name in ("regex", "grammar") and not isinstance(value, str):
        raise BadInput(where, "response_format", f"{name}: {type(value).__name__}", "a text")
    return kinds[name], value


def _as_json(where: str, source: Any) -> str:
    """Return the JSON of a schema. Raise BadInput if it has none."""
    try:
        return json.dumps(source, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise BadInput(
            where, "response_format", f"a schema that is no JSON: {error}", "plain lists and dicts"
        ) from None


@contextmanager
def masks_of(texts: Texts, where: str, given: Any) -> Iterator[RequestOptions]:
    """Yield the options with which `Engine.generate` holds answers to a response format, or NO_OPTIONS for plain text.

    The grammar is compiled in a process of its own, which ends with the block.
    """
    from samebits.engine.request_options import NO_OPTIONS, RequestOptions

    grammar = grammar_of(where, given)
    if grammar is None:
        yield NO_OPTIONS
        return
    from samebits.grammar import masking as masks
    from samebits.grammar.process import vocabulary_of

    with masks.Masking(vocabulary_of(texts.path, texts.vocab_size, texts.tokenizer.special)) as masking:
        try:
            make_mask: Callable[[], TokenMask] = masking.maker(grammar)
        except masks.NotCompiled as error:  # it names a receipt, which this caller does not have
            raise BadInput(where, "response_format", error.reason, masks.NEEDED) from None
        yield RequestOptions(make_mask=make_mask, grammar=grammar)
