"""Grammars at their bounds: the same verdict on every machine, or none."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from samebits import LLM, SamplingParams
from samebits.core import request_limits
from samebits.core.errors import SamebitsError
from samebits.core.grammar_library import grammar_library
from samebits.engine.request_options import RequestOptions
from samebits.grammar import masking as masking_module
from samebits.grammar.masking import Masking, NotCompiled
from samebits.grammar.process import Vocabulary, vocabulary_of
from samebits.grammar.work import MAX_WORK, check_schema, schemas_in, work_of
from samebits.receipts.record import Grammar, Receipt, from_json
from samebits.receipts.verdict import Cause
from samebits.server.limits import Limits

SOURCE = "(ab|cd){3}"


@pytest.fixture(scope="module")
def vocabulary(llm: LLM, model_path: Path) -> Vocabulary:
    found = vocabulary_of(model_path, llm.runner.vocab_size, llm.tokenizer.special)
    assert found is not None
    return found


@pytest.fixture
def masking(vocabulary: Vocabulary) -> Iterator[Masking]:
    with Masking(vocabulary) as found:
        yield found


@pytest.fixture(scope="module")
def receipt(llm: LLM, vocabulary: Vocabulary) -> Receipt:
    """Of an answer that is held to a grammar."""
    with Masking(vocabulary) as found:
        grammar = Grammar("regex", SOURCE)
        params = SamplingParams(max_tokens=8, seed=3, receipt=True)
        job = llm.engine.generate(
            llm.encode("hi"), params, RequestOptions(make_mask=found.maker(grammar), grammar=grammar)
        )
        llm.engine.complete(job)
    made = job.completions()[0].receipt
    assert made is not None
    return made


def with_grammar(receipt: Receipt, source: str, library: str | None, kind: str = "regex") -> Receipt:
    """As a careful hand changes it."""
    changed = replace(receipt, grammar=Grammar(kind, source, library), sha256=None)
    return from_json(changed.to_json())


def test_a_receipt_states_the_library_that_compiled_its_grammar(receipt: Receipt) -> None:
    assert receipt.grammar is not None
    assert receipt.grammar.library == grammar_library()
    assert str(grammar_library()).startswith("llguidance ")
    assert from_json(receipt.to_json()).to_json() == receipt.to_json()


def test_a_receipt_without_the_library_keeps_its_bytes(receipt: Receipt) -> None:
    old = with_grammar(receipt, SOURCE, None)
    assert json.loads(old.to_json())["grammar"] == {"kind": "regex", "source": SOURCE}
    assert from_json(old.to_json()).computed_sha256() == old.sha256


def test_another_library_is_named_where_the_answer_differs_and_only_there(llm: LLM, receipt: Receipt) -> None:
    assert llm.replay(with_grammar(receipt, SOURCE, "llguidance 0.1"))[0].is_same
    (found,) = llm.replay(with_grammar(receipt, "z{30}", "llguidance 0.1"))
    assert (found.cause, found.stated, found.computed) == (Cause.GRAMMAR, "llguidance 0.1", grammar_library())
    assert not found.is_checked
    (ours,) = llm.replay(with_grammar(receipt, "z{30}", grammar_library()))
    assert (ours.cause, ours.is_checked) == (Cause.SAMPLING, True)
    (unknown,) = llm.replay(with_grammar(receipt, "z{30}", None))
    assert unknown.cause is Cause.SAMPLING
    assert "does not state the library" in unknown.line(receipt, "cpu")
    (other_prompt,) = llm.replay(replace(with_grammar(receipt, SOURCE, "llguidance 0.1"), prompt_ids=(70, 71)))
    assert other_prompt.cause is Cause.PROMPT


def test_what_does_not_compile_is_no_receipt_only_if_the_library_is_ours(llm: LLM, receipt: Receipt) -> None:
    causes = {
        library: llm.replay(with_grammar(receipt, "(", library))[0].cause
        for library in (grammar_library(), "llguidance 0.1", None)
    }
    assert causes == {
        grammar_library(): Cause.UNREADABLE,
        "llguidance 0.1": Cause.UNCHECKED,
        None: Cause.UNCHECKED,
    }


def test_a_bound_on_time_gives_no_verdict(llm: LLM, receipt: Receipt, monkeypatch: pytest.MonkeyPatch) -> None:
    """What no machine compiles: intersections whose states multiply."""
    monkeypatch.setattr(masking_module, "GRAMMAR_SECONDS", 0.05)
    endless = json.dumps({"allOf": [{"type": "string", "pattern": f"x.*{i}.*y"} for i in range(200)]})
    costly = with_grammar(receipt, endless, grammar_library(), "json_schema")
    several = llm.replay([costly, costly, receipt])  # it is compiled once for both
    assert [v.cause for v in several] == [Cause.UNCHECKED, Cause.UNCHECKED, None]
    assert "too much time or memory to compile on this machine" in several[0].line(costly, "cpu")


def test_a_grammar_that_broke_a_bound_is_not_compiled_again(masking: Masking, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []
    compiled = masking_module._compiled

    def noted(nursery: Any, grammar: Grammar) -> Any:
        tried.append(grammar.source)
        return compiled(nursery, grammar)

    monkeypatch.setattr(masking_module, "_compiled", noted)
    for library in ("a", "b"):
        with pytest.raises(NotCompiled):
            masking.maker(Grammar("regex", "(", library))
        assert masking.maker(Grammar("regex", "ab", library))
    assert tried == ["(", "ab"]


def test_replays_and_servers_have_the_same_bound() -> None:
    assert Limits().grammar_seconds == request_limits.GRAMMAR_SECONDS == masking_module.GRAMMAR_SECONDS


def schema_of(kind: str, count: int) -> Any:
    """A schema whose work is near that of `count` of its parts."""
    if kind == "properties":
        return {"type": "object", "properties": {f"p{i}": {} for i in range(count)}}
    if kind == "patterns of names":
        return {"type": "object", "patternProperties": {f"^a{i}x.*$": {} for i in range(count)}}
    return {"type": "integer", "multipleOf": count}


@pytest.mark.parametrize(("kind", "most"), [("properties", 2000), ("patterns of names", 100), ("multiple", 40_000)])
def test_work_is_bounded_in_units_that_are_the_same_everywhere(masking: Masking, kind: str, most: int) -> None:
    check_schema(schema_of(kind, most))
    assert work_of(schema_of(kind, most)) == MAX_WORK
    too_much = schema_of(kind, most + 1)
    for schema in (too_much, {"items": [{"anyOf": [too_much]}]}):
        text = json.dumps(schema)
        for grammar in (
            Grammar("json_schema", text),
            Grammar("lark", f'start: "a" x\nx: %json {text}'),
            Grammar("grammar", f'start: "a" x\nx: %json {text}'),
        ):
            with pytest.raises(NotCompiled, match="too many properties"):
                masking.maker(grammar)


def test_small_parts_add_up_and_names_are_no_parts() -> None:
    one = schema_of("multiple", 20_000)
    check_schema({"anyOf": [one, one]})
    with pytest.raises(ValueError, match="multipleOf"):
        check_schema({"anyOf": [one, one, one]})
    check_schema({"properties": {"multipleOf": {"type": "integer"}, "properties": {}}})
    for multiple in (0.25, 1e-300, True, "x", None, 10**20, 1e300):
        is_large = multiple in (10**20, 1e300)
        assert (work_of({"multipleOf": multiple}) > MAX_WORK) == is_large
    assert list(schemas_in('a: %json {"a":1} %json [2] %json x %json {"b')) == [{"a": 1}, [2]]


def test_multiples_that_are_joined_count_together() -> None:
    """One number's remainders by 7, by 11 and by 13 are those by 1001: each alone is little."""
    few, many = [{"multipleOf": m} for m in (0.25, 10, 4)], [{"multipleOf": m} for m in (7, 11, 13, 17, 19)]
    alone = sum(work_of(m) for m in few)
    assert work_of({"anyOf": few}) == alone
    assert work_of({"allOf": few}) == alone + work_of({"multipleOf": 20})
    check_schema({"anyOf": many})
    referred = {"$ref": "#/$defs/a", "multipleOf": 7, "$defs": {"a": {"multipleOf": 30_011}}}
    check_schema({"items": [{"allOf": [{"anyOf": many}, {}]}], "allOf": [{"multipleOf": 3}, {"multipleOf": 0}]})
    for schema in ({"allOf": many}, {"items": [{"allOf": [{"anyOf": many}, {"multipleOf": 3}]}]}, referred):
        with pytest.raises(ValueError, match="multipleOf"):
            check_schema(schema)


A, B = {"type": "integer", "multipleOf": 2001}, {"type": "integer", "multipleOf": 1999}
ENDLESS = {
    "anyOf beside a multiple": {**A, "anyOf": [B]},
    "oneOf beside a multiple": {**A, "oneOf": [{}, B]},
    "alternatives of alternatives": {"anyOf": [{"anyOf": [A, {"type": "null"}], "oneOf": [B]}]},
    "properties of two schemas": {"properties": {"p": A}, "required": ["p"], "anyOf": [{"properties": {"p": B}}]},
    "properties of a reference": {
        "$ref": "#/$defs/a~1b%20c",
        "properties": {"p": A},
        "$defs": {"a/b c": {"properties": {"p": {"$ref": "#/$defs/d/0"}}}, "d": [B]},
    },
    "a reference by name": {"$ref": "#b", **A, "$defs": {"b": {"$anchor": "b", **B}}},
    "a pattern of names": {"properties": {"p": A}, "required": ["p"], "patternProperties": {"^p": B}},
    "additional names": {"properties": {"p": A}, "required": ["p"], "anyOf": [{"additionalProperties": B}]},
    "items": {"type": "array", "minItems": 1, "prefixItems": [A], "anyOf": [{"items": B}]},
    "a reference to itself": {
        "$ref": "#/$defs/a",
        "properties": {"n": {"properties": {"p": A}}},
        "$defs": {"a": {"properties": {"p": B, "n": {"$ref": "#/$defs/a"}}}},
    },
    "a product beyond 32 bits": {"allOf": [{"type": "integer", "multipleOf": 9}, {"multipleOf": 1e-9}]},
    "digits beyond 32 bits": {"allOf": [{"type": "integer", "multipleOf": 99.9}, {"multipleOf": 5e-07}]},
}


@pytest.mark.parametrize("schema", ENDLESS.values(), ids=ENDLESS)
def test_every_way_to_join_multiples_counts(schema: Any) -> None:
    with pytest.raises(ValueError, match="multipleOf"):
        check_schema(schema)


def test_multiples_of_different_numbers_are_not_joined(masking: Masking) -> None:
    """A form as pydantic writes it, whose fields have little to do with each other."""
    steps = {"memory": 4096, "timeout_ms": 1000, "seconds": 60, "dozens": 12, "weekly": 7, "price": 0.01}
    fields = {name: {"type": "number", "multipleOf": step} for name, step in steps.items()}
    part = {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}
    optional = {"anyOf": [{"$ref": "#/$defs/Part"}, {"type": "null"}], "default": None}
    whole = {
        "$defs": {"Part": part},
        "type": "object",
        "properties": {
            "first": {"$ref": "#/$defs/Part", "description": "the first"},
            "second": {"allOf": [{"$ref": "#/$defs/Part"}], "title": "Second"},
            "third": optional,
            "rest": {"type": "array", "items": {"$ref": "#/$defs/Part"}},
            "divisor": {"type": "integer", "multipleOf": 11},
        },
        "required": ["first", "second", "third", "rest", "divisor"],
    }
    check_schema(whole)
    assert masking.maker(Grammar("json_schema", json.dumps(whole)))


def nested_joins(num_levels: int) -> Any:
    """Return a schema that joins two parts at each level."""
    found: Any = {"multipleOf": 2001}
    for i in range(num_levels):
        found = {"properties": {f"p{i}": found}, "allOf": [{}, {"required": []}]}
    return {"anyOf": [found, {"multipleOf": 1999}]}


def test_a_schema_too_large_to_follow_joins_all_its_multiples() -> None:
    check_schema(nested_joins(100))
    with pytest.raises(ValueError, match="multipleOf"):
        check_schema(nested_joins(1000))


def refusal_of(masking: Masking, grammar: Grammar) -> str:
    """Why it is not compiled; nothing if it is."""
    try:
        masking.maker(grammar)
    except SamebitsError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    "source", ["[" * 5000, '{"items":' * 3000 + "{}" + "}" * 3000, "", "nothing", '{"a":NaN}', "\ud800", "\0"]
)
def test_a_hostile_schema_is_a_refusal_or_no_verdict(masking: Masking, source: str) -> None:
    for kind in ("json_schema", "lark", "grammar", "regex"):
        text = f"start: %json {source}" if kind == "lark" else source
        assert refusal_of(masking, Grammar(kind, text)).isprintable()
