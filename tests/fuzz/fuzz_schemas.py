"""Fuzzes response formats: JSON schemas and regular expressions are compiled and followed by the real processes.

    python tests/fuzz/fuzz_schemas.py --seconds 60 [--seed N]

A finding is anything but a compiled format or a refusal in one line, a mask that allows nothing, a process that takes
longer than its bounds, or one that is left.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from driving import drive
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[1] / "server"))
sys.path.insert(0, str(Path(__file__).parents[1] / "engine"))
sys.path.insert(0, str(Path(__file__).parents[1] / "loaders"))

from processes import descendants
from random_tiny import write_random_tiny

from samebits.core.errors import BadInput
from samebits.grammar.process import vocabulary_of
from samebits.models.checkpoint import open_checkpoint
from samebits.server.bodies.openai import ResponseFormat
from samebits.server.grammar.grammars import MAX_KEPT, Grammars
from samebits.server.http.errors import ApiError

COMPILE_SECONDS = 0.3
MAX_SECONDS = 15.0  # for one format and the tokens that follow, on a machine that does other things too
MAX_TOKENS = 24

ATOMS = st.sampled_from(["a", "b", ".", "[a-z]", "[^x]", "\\d", "\\w", "\\s", "é", "\\p{L}", "x.*y", "", "\\u0041"])
PATTERNS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=4).map("".join),
        st.lists(inner, min_size=2, max_size=4).map(lambda parts: "(" + "|".join(parts) + ")"),
        st.builds(lambda p, c: f"({p}){c}", inner, st.sampled_from(["*", "+", "?", "{3}", "{2,50}", "{0,1000}", "*?"])),
        st.builds(lambda p, q: f"({p})&({q})", inner, inner),
        inner.map(lambda p: f"(?!{p})"),
        inner.map(lambda p: f"^{p}$"),
    ),
    max_leaves=12,
)
NAMES = st.sampled_from(["a", "b", "name", "", "é", '"', "\\"]) | st.text(max_size=4)
SMALL = st.integers(-3, 40)
PLAIN = st.one_of(
    st.none(), st.booleans(), SMALL, st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=5)
)
SIMPLE = st.one_of(
    st.just({}),
    st.booleans(),
    st.builds(
        lambda t: {"type": t}, st.sampled_from(["string", "number", "integer", "boolean", "null", "object", "array"])
    ),
    st.builds(lambda v: {"enum": v}, st.lists(PLAIN, max_size=4)),
    st.builds(lambda v: {"const": v}, PLAIN),
    st.builds(lambda p: {"type": "string", "pattern": p}, PATTERNS),
    st.builds(lambda a, b: {"type": "string", "minLength": a, "maxLength": b}, SMALL, SMALL | st.just(10**6)),
    st.builds(
        lambda a, b, m: {"type": "number", "minimum": a, "exclusiveMaximum": b, "multipleOf": m},
        SMALL,
        st.floats(-50, 50),
        st.sampled_from([1, 2, 7, 0.1, 0]),
    ),
    st.builds(lambda f: {"type": "string", "format": f}, st.sampled_from(["date-time", "email", "uri", "uuid", "x"])),
    st.builds(lambda n: {"$ref": n}, st.sampled_from(["#", "#/$defs/d", "#/properties/a", "http://x/y", "#/nowhere"])),
)
SCHEMAS = st.recursive(
    SIMPLE,
    lambda inner: st.one_of(
        st.builds(
            lambda p, more, needed: {
                "type": "object",
                "properties": p,
                "additionalProperties": more,
                "required": needed,
            },
            st.dictionaries(NAMES, inner, max_size=4),
            inner,
            st.lists(NAMES, max_size=3),
        ),
        st.builds(
            lambda i, a, b, u: {"type": "array", "items": i, "minItems": a, "maxItems": b, "uniqueItems": u},
            inner,
            SMALL,
            SMALL | st.just(10**6),
            st.booleans(),
        ),
        st.builds(lambda p: {"type": "array", "prefixItems": p, "items": False}, st.lists(inner, max_size=4)),
        st.builds(lambda k, v: {k: v}, st.sampled_from(["anyOf", "allOf", "oneOf"]), st.lists(inner, max_size=4)),
        st.builds(lambda p, v: {"patternProperties": {p: v}}, PATTERNS, inner),
        st.builds(lambda a, b: {**a, **b} if isinstance(a, dict) and isinstance(b, dict) else a, inner, inner),
        st.builds(lambda d: {"$defs": {"d": d}, "anyOf": [{"$ref": "#/$defs/d"}, {"type": "null"}]}, inner),
        st.builds(lambda v: {"not": v}, inner),
    ),
    max_leaves=12,
)
KEYWORDS = st.dictionaries(
    st.sampled_from(["type", "items", "enum", "required", "x-guidance", "$ref"]), PLAIN, max_size=3
)


def schema_format(schema: Any) -> dict[str, Any]:
    whole = schema if isinstance(schema, dict) else {"anyOf": [schema]}
    return {"type": "json_schema", "json_schema": {"schema": whole}}


FORMATS = st.one_of(
    SCHEMAS.map(schema_format),
    KEYWORDS.map(schema_format),
    PATTERNS.filter(bool).map(lambda pattern: {"type": "regex", "pattern": pattern}),
    st.text(min_size=1, max_size=12).map(lambda pattern: {"type": "regex", "pattern": pattern}),
)


class Target:
    """The processes of grammars over a tiny vocabulary."""

    def __init__(self, folder: Path) -> None:
        path = write_random_tiny(folder / "random.gguf")
        checkpoint = open_checkpoint(path)
        self.tokenizer = checkpoint.tokenizer()
        vocab_size = checkpoint.config.vocab_size
        vocabulary = vocabulary_of(path, vocab_size, self.tokenizer.special)
        self.grammars, self.loop = Grammars(vocabulary, COMPILE_SECONDS), asyncio.new_event_loop()

    def check(self, wanted: dict[str, Any]) -> None:
        start = time.monotonic()
        refusal = self.follow(wanted)
        assert refusal.isprintable(), refusal
        assert len(refusal) < 500, refusal
        assert time.monotonic() - start < MAX_SECONDS, f"{time.monotonic() - start:.1f} s"
        assert len(descendants(os.getpid())) <= MAX_KEPT + 8, "processes are left"

    def follow(self, wanted: dict[str, Any]) -> str:
        """Draws some tokens in a format; the line by which it was refused, or nothing."""
        drawn = random.Random(repr(wanted))
        try:
            output = ResponseFormat.model_validate(wanted).wanted
            assert output is not None
            follower = self.loop.run_until_complete(self.grammars.follower(output))
        except ApiError as error:
            if error.status != 400:
                raise
            return str(error)
        assert follower is not None
        try:
            mask = follower.new_mask()
            for _ in range(MAX_TOKENS):
                allowed = np.flatnonzero(mask.allowed())
                assert len(allowed), "nothing is allowed"
                token = int(drawn.choice(allowed))
                if token in self.tokenizer.special.end_ids:
                    break
                mask.accept(token)
        except BadInput as error:
            return str(error)
        finally:
            follower.end()
        return ""


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        target = Target(Path(folder))
        try:
            return drive("fuzz_schemas", FORMATS, target.check)
        finally:
            target.grammars.close()


if __name__ == "__main__":
    sys.exit(main())
