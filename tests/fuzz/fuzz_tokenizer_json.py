"""tokenizer.json files: steps in any order and number, values that nobody expects, and damaged text."""

from __future__ import annotations

import copy
import json
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from fuzz_driver import Target, main, only_own_errors
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[1] / "loaders"))

from test_loader_fuzz import EDITS, edited
from test_tokenizer_json import valid

from samebits.loaders.hf_tokenizer import tokenizer_from_folder
from samebits.loaders.split_patterns import SPLIT_PATTERNS
from samebits.loaders.tokenizer_json import KNOWN, LISTS

TEXTS = ("hi <s> h\u00e9llo aaaa\n", "\ufdfa\u0390 <s>\U0001f642" * 200, " " * 3000 + "a" * 5000)


def run(data: bytes) -> None:
    """Loads, encodes and decodes as a user would."""
    with tempfile.TemporaryDirectory() as folder, only_own_errors():
        (Path(folder) / "tokenizer.json").write_bytes(data)
        tokenizer = tokenizer_from_folder(Path(folder))
        for text in TEXTS:
            for parse_special in (True, False):
                tokenizer.decode(tokenizer.encode(text, parse_special=parse_special)[:200])


@cache
def seeds() -> list[bytes]:
    whole = valid()
    nfc = whole | {"normalizer": {"type": "NFC"}}
    mark = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}
    steps = [{"type": "Prepend", "prepend": "\u2581"}, mark]
    pieces = whole | {"normalizer": {"type": "Sequence", "normalizers": steps}, "pre_tokenizer": None}
    pieces["decoder"] = {"type": "Sequence", "decoders": [mark, {"type": "ByteFallback"}, {"type": "Fuse"}]}
    return [json.dumps(value).encode() for value in (whole, nfc, pieces)]


SHORT = st.one_of(st.text(max_size=3), st.sampled_from(["a", " ", "\u2581", "aa" * 40, "", "\ufdfa"]))
REGEXES = st.one_of(st.sampled_from(sorted(SPLIT_PATTERNS)), st.sampled_from(["(a+)+$", "x*", "(a{99}){99}", "", "("]))
PATTERNS = st.one_of(SHORT.map(lambda text: {"String": text}), REGEXES.map(lambda regex: {"Regex": regex}))
ANYTHING = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-2, 1 << 40), st.floats(0, 2), SHORT),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(SHORT, inner, max_size=3)),
    max_leaves=6,
)
OTHER_KINDS = ["BertNormalizer", "Nmt", "Precompiled", "BertPreTokenizer", "UnicodeScripts", "CharDelimiterSplit"]
OTHER_KINDS += ["FixedLength", "BertProcessing", "RobertaProcessing", "WordPiece", "CTC", "BPEDecoder"]
KINDS = st.sampled_from(sorted({*(kind for part in KNOWN.values() for kind in part), *OTHER_KINDS}))
TEMPLATE_PIECES = st.lists(
    st.sampled_from([{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "<s>", "type_id": 0}}]),
    max_size=5,
)
TOKENS = st.fixed_dictionaries({"<s>": st.fixed_dictionaries({"id": st.just("<s>"), "ids": st.just([257])})})
OPTIONS = {
    "pattern": PATTERNS,
    "content": SHORT,
    "prepend": SHORT,
    "replacement": st.sampled_from(["\u2581", "_", "ab", ""]),
    "prepend_scheme": st.sampled_from(["always", "never", "first", "x"]),
    "split": st.booleans(),
    "behavior": st.sampled_from(["Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"]),
    "invert": st.booleans(),
    "add_prefix_space": st.booleans(),
    "trim_offsets": st.booleans(),
    "use_regex": st.booleans(),
    "individual_digits": st.booleans(),
    "strip_left": st.booleans(),
    "strip_right": st.booleans(),
    "start": st.integers(0, 3),
    "stop": st.integers(0, 3),
    "single": TEMPLATE_PIECES,
    "pair": TEMPLATE_PIECES,
    "special_tokens": st.one_of(TOKENS, st.just({})),
}
STEP = st.builds(lambda kind, options: {"type": kind, **options}, KINDS, st.fixed_dictionaries(OPTIONS))


def part(name: str) -> st.SearchStrategy[Any]:
    return st.recursive(
        st.one_of(STEP, st.none()),
        lambda inner: st.lists(inner, max_size=20).map(lambda steps: {"type": "Sequence", LISTS[name]: steps}),
        max_leaves=20,
    )


def replaced(whole: Any, path: list[int], value: Any) -> Any:
    """The document with another value at a place that the numbers lead to."""
    whole = copy.deepcopy(whole)
    here = whole
    for number in path:
        keys = list(here) if isinstance(here, dict) else range(len(here))
        if not len(keys):
            break
        key = keys[number % len(keys)]
        if number == path[-1] or not isinstance(here[key], dict | list):
            here[key] = value
            break
        here = here[key]
    return whole


PARTS = st.fixed_dictionaries({}, optional={name: part(name) for name in LISTS})
STRUCTURED = PARTS.map(lambda parts: json.dumps(valid_once() | parts).encode())
CHANGED = st.builds(
    lambda number, path, value: json.dumps(replaced(json.loads(seeds()[number]), path, value)).encode(),
    st.integers(0, 2),
    st.lists(st.integers(0, 300), min_size=1, max_size=4),
    ANYTHING,
)
DAMAGED = st.builds(
    lambda number, edits: edited(seeds()[number], len(seeds()[number]), edits),
    st.integers(0, 2),
    st.lists(EDITS, min_size=1, max_size=4),
)


@cache
def valid_once() -> dict[str, Any]:
    return valid()


if __name__ == "__main__":
    main(Target("fuzz_tokenizer_json", run, st.one_of(STRUCTURED, CHANGED, DAMAGED), seeds))
