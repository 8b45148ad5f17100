"""Chat templates: programs put together from what jinja knows, and damaged real ones, over odd messages."""

from __future__ import annotations

import json
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any

from fuzz_driver import Finding, Target, main, only_own_errors
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[1] / "loaders"))

from gguf_writer import TEMPLATE

from samebits.loaders.chat import MAX_OUTPUT_CHARS, ChatTemplate

MAX_SECONDS = 0.5  # for a template; a hostile one is ended then, which is no finding
MAX_EXTRA_SECONDS = 20.0  # to end it and to start anew, on a machine that is busy
MESSAGES = [{"role": "system", "content": "s"}, {"role": "user", "content": "hi \u00e9 {{ x }}"}]


def run(data: bytes) -> None:
    """Renders one template. The bytes are a JSON object, or else a template by themselves."""
    try:
        given: Any = json.loads(data)
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict):
        given = {"template": data.decode("utf-8", "replace"), "messages": MESSAGES}
    template, messages = given.get("template"), given.get("messages")
    if not isinstance(template, str) or not isinstance(messages, list):
        return
    start = time.monotonic()
    with only_own_errors():
        text = ChatTemplate(template, "fuzz").render(messages, max_seconds=MAX_SECONDS)
        if len(text) > MAX_OUTPUT_CHARS:
            raise Finding(f"{len(text)} characters")
    if time.monotonic() - start > MAX_SECONDS + MAX_EXTRA_SECONDS:
        raise Finding(f"{time.monotonic() - start:.1f} s")


@cache
def seeds() -> list[bytes]:
    loops = "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{{ ns.n }}{% endfor %}"
    macro = "{% macro f(x) %}{{ x | trim }}{% endmacro %}{{ f(messages[0]['content']) }}{{ bos_token }}"
    date = "{{ strftime_now('%Y') }}{% if add_generation_prompt %}{{ raise_exception('no') }}{% endif %}"
    return [json.dumps({"template": t, "messages": MESSAGES}).encode() for t in (TEMPLATE, loops, macro, date)]


ATOMS = st.one_of(
    st.sampled_from(
        ["messages", "m", "bos_token", "x", "''", "'a'", "0", "1", "-1", "9**9", "range(9)", "loop", "none"]
    ),
    st.sampled_from(["messages[0]", "m['content']", "m.role", "cycler", "namespace()", "dict(a=1)", "[1, 2]", "{}"]),
    st.sampled_from(["''.__class__", "x.__init__.__globals__", "range(10**9)", "'a' * 10**9", "lipsum(99)", "joiner"]),
)
FILTERS = st.one_of(
    st.sampled_from(["length", "upper", "join", "list", "string", "tojson", "trim", "sort", "int", "float", "round"]),
    st.sampled_from(["batch(2)", "format", "wordwrap(0)", "center(999999)", "indent(99)", "unique", "map('upper')"]),
    st.sampled_from(["replace('a', 'b' * 99)", "safe", "urlize", "random"]),
)
EXPRESSIONS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.builds("{} {} {}".format, inner, st.sampled_from(["+", "~", "*", "%", "**", "in", "==", "and"]), inner),
        st.builds("({})|{}".format, inner, FILTERS),
        st.builds("({}).{}()".format, inner, st.sampled_from(["items", "format", "split", "strip", "join", "encode"])),
        st.builds("{}[{}]".format, inner, inner),
    ),
    max_leaves=6,
)


def loop(over: str, body: str) -> str:
    return f"{{% for m in {over} %}}{body}{{% endfor %}}"


def choice(test: str, body: str) -> str:
    return f"{{% if {test} %}}{body}{{% endif %}}"


def macro(body: str) -> str:
    return f"{{% macro f(x) %}}{body}{{{{ f(x) }}}}{{% endmacro %}}{{{{ f(1) }}}}"


BLOCKS = st.recursive(
    st.one_of(
        st.text(max_size=5), EXPRESSIONS.map("{{{{ {} }}}}".format), EXPRESSIONS.map("{{% set x = {} %}}".format)
    ),
    lambda inner: st.one_of(
        st.builds(loop, EXPRESSIONS, inner),
        st.builds(choice, EXPRESSIONS, inner),
        st.builds(macro, inner),
        st.builds("{}{}".format, inner, inner),
    ),
    max_leaves=6,
)
BROKEN = st.lists(
    st.sampled_from(["{{", "}}", "{%", "%}", "{#", "#}", "for", " in ", "if", "endfor", "'", "x", "\\", "-"])
)
ODD = st.recursive(
    st.none() | st.integers() | st.text(max_size=4), lambda i: st.lists(i) | st.dictionaries(st.text(), i)
)
MESSAGE = st.one_of(st.fixed_dictionaries({"role": st.text(max_size=6), "content": st.text(max_size=20)}), ODD)
CUT = st.builds(
    lambda at, text: TEMPLATE[:at] + text + TEMPLATE[at + 1 :], st.integers(0, len(TEMPLATE)), st.text(max_size=3)
)
INPUTS = st.builds(
    lambda template, messages: json.dumps({"template": template, "messages": messages}).encode(),
    st.one_of(BLOCKS, BROKEN.map("".join), CUT),
    st.one_of(st.just(MESSAGES), st.lists(MESSAGE, max_size=3)),
)

if __name__ == "__main__":
    main(Target("fuzz_templates", run, INPUTS, seeds, max_cpu_seconds=5.0))
