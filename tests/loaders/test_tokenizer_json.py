"""tokenizer.json files made to grow a text, to backtrack or to draw lots: refused before the library sees them."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, normalizers, pre_tokenizers

from samebits.core.errors import BadInput
from samebits.loaders.byte_level import BYTE_OF_CHAR
from samebits.loaders.hf_tokenizer import tokenizer_from_folder
from samebits.loaders.split_patterns import SPLIT_PATTERNS
from samebits.loaders.tokenizer_json import MAX_GROWTH, check_tokenizer_json

DOUBLE = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
TEXT = {"Sequence": {"id": "A", "type_id": 0}}
TWICE = {"type": "TemplateProcessing", "single": [TEXT, TEXT], "pair": [], "special_tokens": {}}
BACKTRACKS = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}
LOTTERY = {"type": "Precompiled", "precompiled_charsmap": "AAAA"}


def valid() -> dict[str, Any]:
    vocab = {text: i for i, text in enumerate([*BYTE_OF_CHAR, "hi"])}
    library = tokenizers.Tokenizer(tokenizers.models.BPE(vocab, [("h", "i")]))
    library.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = tokenizers.decoders.ByteLevel()
    library.add_special_tokens(["<s>"])
    library.post_processor = tokenizers.processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 257)])
    return dict(json.loads(library.to_str()))


def sequence(name: str, *steps: Any) -> dict[str, Any]:
    return {"type": "Sequence", name: list(steps)}


def deep(step: Any, depth: int) -> Any:
    return step if depth == 0 else sequence("normalizers", deep(step, depth - 1))


def of_model(**changes: Any) -> Callable[[dict[str, Any]], None]:
    return lambda whole: whole["model"].update(changes)


def of_file(**changes: Any) -> Callable[[dict[str, Any]], None]:
    return lambda whole: whole.update(changes)


def added(*contents: Any, first: int = 300) -> Callable[[dict[str, Any]], None]:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
    return of_file(added_tokens=[{"id": first + i, "content": text, **flags} for i, text in enumerate(contents)])


WRONG: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "doubled 26 times": (
        of_file(normalizer=sequence("normalizers", *[DOUBLE] * 26)),
        "a list of 26, but must be at most 16",
    ),
    "doubled 16 times": (of_file(normalizer=sequence("normalizers", *[DOUBLE] * 16)), "grown 1.31e\\+05 times"),
    "doubled in sequences": (
        of_file(normalizer=sequence("normalizers", *[sequence("normalizers", *[DOUBLE] * 13)] * 2)),
        "normalizer has 26 steps",
    ),
    "deep": (of_file(normalizer=deep(DOUBLE, 5)), "4 deep"),
    "long content": (of_file(normalizer=DOUBLE | {"content": "a" * 65}), "content is .*at most 64 bytes"),
    "empty pattern": (of_file(normalizer=DOUBLE | {"pattern": {"String": ""}}), "pattern is an empty text"),
    "no pattern": (of_file(normalizer=DOUBLE | {"pattern": {}}), "pattern is "),
    "regex to replace": (
        of_file(normalizer=DOUBLE | {"pattern": {"Regex": "x*"}}),
        "'x\\*', but must be a text, or a regular",
    ),
    "long prefix": (of_file(normalizer={"type": "Prepend", "prepend": "p" * 1000}), "prepend is a str of 1000"),
    "bytes of bytes": (of_file(pre_tokenizer=sequence("pretokenizers", *[BYTES] * 7)), "grown 128 times"),
    "charsmap": (of_file(normalizer=LOTTERY), "type is 'Precompiled', but must be one of"),
    "backtracking": (of_file(pre_tokenizer=BACKTRACKS), "regular expression of a model family"),
    "unknown step": (of_file(pre_tokenizer={"type": "FixedLength", "length": 1}), "type is 'FixedLength'"),
    "step without a type": (of_file(pre_tokenizer={}), "type is missing"),
    "step of another kind": (of_file(pre_tokenizer=[1]), "pre_tokenizer is a list of 1, but must be an object"),
    "template that repeats": (
        of_file(post_processor=TWICE),
        "single has 2 times the text, but must have the text once",
    ),
    "templates of templates": (of_file(post_processor=sequence("processors", *[TWICE] * 26)), "at most 16 steps"),
    "long template": (
        of_file(post_processor=TWICE | {"single": [TEXT] + [{"SpecialToken": {"id": "<s>", "type_id": 0}}] * 99}),
        "single is a list of 100",
    ),
    "special token of many ids": (
        of_file(
            post_processor=TWICE
            | {"single": [TEXT], "special_tokens": {"<s>": {"id": "<s>", "ids": [1] * 999, "tokens": ["<s>"] * 999}}}
        ),
        "special_tokens is a list of 999",
    ),
    "regex of a decoder": (
        of_file(decoder={"type": "Replace", "pattern": {"Regex": "(a{999}){999}"}, "content": ""}),
        "decoder: pattern is",
    ),
    "dropout": (of_model(dropout=0.5), "dropout is 0.5"),
    "another model": (of_model(type="Unigram"), "type is 'Unigram', but must be BPE"),
    "prefix": (of_model(continuing_subword_prefix="##"), "continuing_subword_prefix is '##', which is not supported"),
    "huge id": (of_model(vocab={"a": 1 << 40}), "vocab is 1099511627776, but must be ids"),
    "id of text": (of_model(vocab={"a": "1"}), "vocab is '1'"),
    "merge of three": (of_model(merges=[["a", "b", "c"]]), "merges is a list of 3"),
    "no vocabulary": (of_model(vocab=None), "vocab is "),
    "empty added token": (added(""), "added_tokens is ''"),
    "long added token": (added("x" * 1025), "added_tokens is a str of 1025"),
    "many added tokens": (added(*map(str, range(16_385))), "added_tokens is a list of 16385"),
    "added token far away": (added("x", first=1 << 31), "added_tokens is 2147483648"),
}


@pytest.mark.parametrize("name", WRONG)
def test_hostile_files_are_one_line(name: str, tmp_path: Path) -> None:
    change, expected = WRONG[name]
    whole = valid()
    change(whole)
    (tmp_path / "tokenizer.json").write_text(json.dumps(whole))
    with pytest.raises(BadInput, match=expected) as caught:
        tokenizer_from_folder(tmp_path)
    assert str(caught.value).startswith(str(tmp_path / "tokenizer.json"))
    assert str(caught.value).isprintable()


def test_keys_that_repeat_and_documents_of_too_many_items(tmp_path: Path) -> None:
    """The library and our check must read the same file, and reading it must not take gigabytes."""
    for text, expected in (
        (json.dumps(valid())[:-1] + ', "normalizer": null}', "the same key twice"),
        ("[" + "[]," * (1 << 22) + "[]]", "about 8388610 items, but must be at most 8388608"),
        ("[" * 100_000, "nested"),
    ):
        (tmp_path / "tokenizer.json").write_text(text)
        with pytest.raises(BadInput, match=expected):
            tokenizer_from_folder(tmp_path)


def test_files_as_model_families_have_them(tmp_path: Path) -> None:
    """Normalizers and pre-tokenizers of Llama 2 and 3, Qwen 2, Gemma 2, Mistral and SmolLM."""
    split = {"type": "Split", "behavior": "Isolated", "invert": False}
    whole = valid()
    to_mark = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}
    plain = BYTES | {"use_regex": False}
    digits = {"type": "Digits", "individual_digits": True}
    words = [split | {"pattern": {"Regex": pattern}} for pattern in sorted(SPLIT_PATTERNS)]
    normal = [
        None,
        {"type": "NFC"},
        to_mark,
        sequence("normalizers", {"type": "Prepend", "prepend": "\u2581"}, to_mark),
    ]
    before = [None, BYTES, sequence("pretokenizers", digits, BYTES), split | {"pattern": {"String": " "}}]
    before += [sequence("pretokenizers", word, plain) for word in words]
    for normalizer in normal:
        for pre_tokenizer in before:
            changed = whole | {"normalizer": normalizer, "pre_tokenizer": pre_tokenizer}
            assert check_tokenizer_json(changed, "x") <= MAX_GROWTH
            (tmp_path / "tokenizer.json").write_text(json.dumps(changed))
            tokenizer_from_folder(tmp_path).encode("hi there, 12 things\n")


CHARS = st.sampled_from("a \u2581\ufdfa\u0390\U0001d160\u0130\u023a\u1fa2\xe9\n1!")
LITERALS = st.text(CHARS, min_size=1, max_size=3)
NORMAL = {
    "NFC": normalizers.NFC,
    "NFD": normalizers.NFD,
    "NFKC": normalizers.NFKC,
    "NFKD": normalizers.NFKD,
    "Lowercase": normalizers.Lowercase,
    "ByteLevel": normalizers.ByteLevel,
}
NORMALIZERS = st.one_of(
    st.sampled_from(sorted(NORMAL)).map(lambda kind: NORMAL[kind]()),
    LITERALS.map(normalizers.Prepend),
    st.tuples(LITERALS, st.text(CHARS, max_size=4)).map(lambda pair: normalizers.Replace(*pair)),
)
PRE_TOKENIZERS = st.one_of(
    st.booleans().map(lambda prefix: pre_tokenizers.ByteLevel(add_prefix_space=prefix)),
    st.sampled_from(["always", "never", "first"]).map(lambda way: pre_tokenizers.Metaspace(prepend_scheme=way)),
    st.booleans().map(pre_tokenizers.Digits),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(NORMALIZERS, max_size=2), st.lists(PRE_TOKENIZERS, max_size=2), st.text(CHARS, min_size=1, max_size=20))
def test_no_text_grows_beyond_what_is_said(normal: list[Any], before: list[Any], text: str) -> None:
    library = tokenizers.Tokenizer.from_str(json.dumps(valid()))
    library.normalizer = normalizers.Sequence(normal)
    library.pre_tokenizer = pre_tokenizers.Sequence(before)
    try:
        growth = check_tokenizer_json(json.loads(library.to_str()), "x")
    except BadInput:
        return
    words = library.pre_tokenizer.pre_tokenize_str(library.normalizer.normalize_str(text))
    assert sum(len(word.encode()) for word, _ in words) <= growth * len(text.encode())


@pytest.mark.parametrize("pattern", sorted(SPLIT_PATTERNS))
def test_patterns_take_linear_time(pattern: str) -> None:
    """Long runs that end in something else: with a pattern that backtracks each would take many seconds."""
    split = pre_tokenizers.Split(Regex(pattern), "isolated")
    start = time.thread_time()
    for text in ("a", "A", " ", "\n", " \n", "\t", "1", "!", "\u4e2d"):
        split.pre_tokenize_str(text * ((1 << 16) // len(text)) + "b")
    assert time.thread_time() - start < 5


def test_a_text_that_may_grow_much_must_be_short(tmp_path: Path) -> None:
    whole = copy.deepcopy(valid()) | {"normalizer": {"type": "NFKC"}}
    (tmp_path / "tokenizer.json").write_text(json.dumps(whole))
    tokenizer = tokenizer_from_folder(tmp_path)
    assert tokenizer.max_text_bytes == (1 << 20) * 12 // 22
    with pytest.raises(BadInput, match="text has 571951 bytes, but must have at most 571950"):
        tokenizer.encode("a" * 571_951)
