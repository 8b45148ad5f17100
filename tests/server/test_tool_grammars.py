"""Grammars of calls: what they let through and what not, for every form, and that the form reads what they write."""

from __future__ import annotations

import json
from functools import cache

import llguidance
import pytest
from test_channels import tokenizer_with

from samebits.engine.reasoning import THINK_MARKS, ThinkMarks
from samebits.grammar.worker import LIMITS, _Vocabulary
from samebits.loaders import Tokenizer
from samebits.server.grammar.output_format import OutputFormat
from samebits.server.http.errors import ApiError
from samebits.server.tools.forms import FORMS
from samebits.server.tools.grammar import MAX_CALLS, answer_format
from samebits.server.tools.offer import NOTHING, Choice, Offer, Tool
from samebits.server.tools.reading import ParsedCall
from samebits.server.tools.scanner import CallScanner

CONTROLS = ("<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|return|>", "<|call|>", "<|constrain|>")
CONTROLS += ("[TOOL_CALLS]", "[ARGS]", "[THINK]", "[/THINK]", "<|python_tag|>")
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
STRICT, LOOSE, OTHER = Tool("f", None, SCHEMA, True), Tool("f", None, SCHEMA), Tool("g")
GOOD, WRONG = '{"a": 1}', '{"a": "x"}'
THINK, MISTRAL = THINK_MARKS["think"], THINK_MARKS["mistral"]


@cache
def vocabulary() -> tuple[Tokenizer, llguidance.LLTokenizer]:
    tokenizer = tokenizer_with(*CONTROLS)
    wrapped = llguidance.TokenizerWrapper(_Vocabulary(tokenizer, tokenizer.special.eot))
    return tokenizer, llguidance.LLTokenizer(wrapped, n_vocab=tokenizer.vocab_size)


def fits(wanted: OutputFormat, text: str) -> bool:
    """Whether a whole answer fits a grammar."""
    tokenizer, library = vocabulary()
    assert wanted.kind == "lark"
    grammar = str(llguidance.LLMatcher.grammar_from_lark(wanted.source))
    matcher = llguidance.LLMatcher(library, grammar, log_level=0, limits=LIMITS)
    assert not matcher.get_error()
    ids = tokenizer.encode(text, add_special=False)
    return bool(matcher.try_consume_tokens(ids) == len(ids) and matcher.is_accepting())


def grammar(
    form: str,
    *tools: Tool,
    choice: Choice = "auto",
    only: str | None = None,
    is_parallel: bool = True,
    text: OutputFormat | None = None,
    marks: ThinkMarks | None = None,
    is_open: bool = False,
) -> OutputFormat | None:
    offer = Offer(tools, choice, only, is_parallel)
    return answer_format(offer, FORMS[form], text, marks, is_open, vocabulary()[0].control_id)


def call(form: str, name: str, arguments: str) -> str:
    """A call as a grammar writes it."""
    before, after = FORMS[form].written(name)
    return "".join(before) + arguments + "".join(after)


@pytest.mark.parametrize("form", sorted(FORMS))
def test_a_forced_call_has_its_schema_and_no_text(form: str) -> None:
    wanted = grammar(form, LOOSE, OTHER, choice="required", is_parallel=False)
    assert wanted is not None
    good = call(form, "f", GOOD)
    assert fits(wanted, good)
    assert fits(wanted, call(form, "g", "{}"))
    for bad in (call(form, "f", WRONG), call(form, "g", GOOD), call(form, "h", "{}"), "text", "", f"text {good}"):
        assert not fits(wanted, bad), bad
    only = grammar(form, LOOSE, OTHER, choice="required", only="f")
    assert only is not None
    assert fits(only, good)
    assert not fits(only, call(form, "g", "{}"))


@pytest.mark.parametrize("form", sorted(set(FORMS) - {"gpt_oss"}))
def test_parallel_calls_are_read_back_and_there_is_an_end_of_them(form: str) -> None:
    one, between = call(form, "f", GOOD), "".join(FORMS[form].between)
    many, single = (grammar(form, LOOSE, choice="required", is_parallel=p) for p in (True, False))
    assert many is not None
    assert single is not None
    assert fits(many, between.join([one] * MAX_CALLS))
    assert not fits(many, between.join([one] * (MAX_CALLS + 1)))
    assert not fits(single, between.join([one] * 2))
    scanner = CallScanner(FORMS[form], frozenset("f"))
    assert scanner.push(between.join([one] * 3)) + scanner.finish() == [ParsedCall("f", {"a": 1})] * 3


@pytest.mark.parametrize("form", sorted(FORMS))
def test_text_is_free_and_calls_in_it_are_held_to_a_strict_schema(form: str) -> None:
    assert grammar(form, LOOSE) is None
    wanted, single = grammar(form, STRICT, OTHER), grammar(form, LOOSE, is_parallel=False)
    assert wanted is not None
    assert single is not None
    text = "<|channel|>final<|message|>Hi {there}" if form == "gpt_oss" else "Hi {there}"
    good, wrong, between = call(form, "f", GOOD), call(form, "f", WRONG), "".join(FORMS[form].between)
    assert fits(wanted, text)
    assert fits(wanted, good)
    assert fits(wanted, call(form, "g", '{"anything": [1]}'))
    assert not fits(wanted, wrong)
    assert fits(single, wrong)  # only how often is held to
    assert not fits(single, good + between + good)
    if form not in ("gpt_oss", "llama3"):
        assert fits(wanted, f"Hi. {good}{between}{good} So.")
        assert not fits(wanted, f"Hi. {wrong}")
        assert fits(single, f"Hi. {good}")


@pytest.mark.parametrize(
    ("form", "marks", "is_open", "thought"),
    [
        ("hermes", THINK, False, "<think>\nHm. <tool_call></think>\n\n"),
        ("hermes", THINK, True, "Hm.</think>"),
        ("mistral", MISTRAL, False, "[THINK]Hm.[/THINK]"),
        ("mistral", MISTRAL, True, "Hm.[/THINK] "),
        ("gpt_oss", None, False, "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant"),
    ],
)
def test_reasoning_comes_before_a_forced_call(form: str, marks: ThinkMarks | None, is_open: bool, thought: str) -> None:
    wanted = grammar(form, LOOSE, choice="required", marks=marks, is_open=is_open)
    assert wanted is not None
    good = call(form, "f", GOOD)
    assert fits(wanted, thought + good)
    assert fits(wanted, good) is not is_open
    assert not fits(wanted, f"{thought}text {good}")


def test_reasoning_that_the_prompt_opened_comes_before_a_format() -> None:
    schema, pattern = OutputFormat("json_schema", json.dumps(SCHEMA)), OutputFormat("regex", "a/b|c")
    for form, text in ((schema, GOOD), (pattern, "a/b")):
        wanted = grammar("hermes", text=form, marks=THINK, is_open=True)
        assert wanted is not None
        assert wanted.param == "response_format"
        assert fits(wanted, f"Hm.\n</think>\n{text}")
        assert not fits(wanted, text)
        assert grammar("hermes", text=form, marks=THINK) is form
        beside = grammar("hermes", STRICT, text=form)
        assert beside is not None
        assert fits(beside, text)
        assert fits(beside, call("hermes", "f", GOOD))
        assert not fits(beside, "other")
    with pytest.raises(ApiError, match="a grammar beside tools"):
        grammar("hermes", STRICT, text=OutputFormat("lark", 'start: "a"', "grammar"))
    assert answer_format(NOTHING, FORMS["hermes"], None, None, False, lambda text: None) is None


def test_objects_of_a_forced_call_have_the_properties_that_are_named() -> None:
    inner = {"type": "object", "properties": {"b": {"type": "integer"}}}
    schema = {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/Inner"}, "c": {"anyOf": [inner, {"type": "null"}]}},
    }
    schema |= {"$defs": {"Inner": inner}, "required": ["a"]}
    wanted = grammar("hermes", Tool("f", None, schema), Tool("g", None, {"type": "object"}), choice="required")
    assert wanted is not None
    for good in ('{"a": {"b": 1}}', '{"a": {}, "c": null}', '{"a": {}, "c": {"b": 1}}'):
        assert fits(wanted, call("hermes", "f", good)), good
    for bad in ('{"a": {}, "d": 1}', '{"a": {"d": 1}}', '{"a": {}, "c": {"d": 1}}'):
        assert not fits(wanted, call("hermes", "f", bad)), bad
    assert fits(wanted, call("hermes", "g", '{"anything": 1}'))  # it names none
    merged = {"type": "object", "properties": {"a": {"type": "integer"}}, "allOf": [inner], "required": ["a", "b"]}
    both = grammar("hermes", Tool("f", None, merged), choice="required")
    assert both is not None
    assert fits(both, call("hermes", "f", '{"a": 1, "b": 2}'))


def test_schemas_are_bounded_in_all() -> None:
    tools = [
        Tool(f"f{i}", None, {"type": "object", "properties": {"a": {"enum": ["x" * 100] * 1000}}}) for i in range(3)
    ]
    with pytest.raises(ApiError, match="tools is more than 262144 characters, but must be shorter"):
        grammar("hermes", *tools, choice="required")
    assert grammar("hermes", *tools[:2], choice="required") is not None
    assert grammar("hermes", *tools) is None
