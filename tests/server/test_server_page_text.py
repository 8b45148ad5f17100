"""Markdown on the page: what it becomes, and that nothing in it is trusted."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from browsers import opened, real_browser
from live_server import Running

# The elements as nested lists: [tag, child, ...], a text as it is.
TREE = """async text => {
    const { markdown } = await import('./page/markdown.js');
    const { whole } = await import('./page/slices.js');
    const tree = node => node.nodeType === 3
        ? node.data
        : [node.tagName.toLowerCase(), ...[...node.childNodes].map(tree)];
    return whole(markdown(text)).map(tree);
}"""
# Every element and attribute that a text brings about, put into the document for a moment.
PARTS = """async texts => {
    const { markdown } = await import('./page/markdown.js');
    const { whole } = await import('./page/slices.js');
    return texts.map(text => {
        const box = document.createElement('div');
        document.body.append(box);
        box.append(...whole(markdown(text)));
        const attributes = e => [...e.attributes].map(a => `${a.name}=${a.value}`);
        const parts = [...box.querySelectorAll('*')].flatMap(e => [e.tagName.toLowerCase(), ...attributes(e)]);
        const shown = box.textContent;
        box.remove();
        return [parts, shown];
    });
}"""


@pytest.fixture(scope="module")
def page(server: Running) -> Iterator[Any]:
    with real_browser() as browser, opened(browser, server.url) as it:
        yield it


CASES: dict[str, list[Any]] = {
    "plain": [["p", "plain"]],
    "one\ntwo\n\nthree": [["p", "one\ntwo"], ["p", "three"]],
    "# Title\ntext": [["h3", "Title"], ["p", "text"]],
    "a **b *c* d** e": [["p", "a ", ["strong", "b ", ["em", "c"], " d"], " e"]],
    "snake_case_name and 2 * 3 * 4": [["p", "snake_case_name and 2 * 3 * 4"]],
    "`a*b*` and ``x`y``": [["p", ["code", "a*b*"], " and ", ["code", "x`y"]]],
    r"\*not\* this": [["p", "*not* this"]],
    "- a\n- b\n  - c\n- d": [["ul", ["li", "a"], ["li", "b", ["ul", ["li", "c"]]], ["li", "d"]]],
    "3. a\n4. b": [["ol", ["li", "a"], ["li", "b"]]],
    "> a\n> - b": [["blockquote", ["p", "a"], ["ul", ["li", "b"]]]],
    "---": [["hr"]],
    "see https://a.example/b_c. And": [["p", "see ", ["a", "https://a.example/b_c"], ". And"]],
    "[a *b*](https://a.example)": [["p", ["a", "a ", ["em", "b"]]]],
    "an open **end": [["p", "an open **end"]],
    "```py\nx = 1\n\n# no title": [
        ["figure", ["figcaption", ["span", "py"], ["button", "Copy"]], ["pre", ["code", "x = 1\n\n# no title"]]]
    ],
    "| a | b |\n|---|:-:|\n| 1 | `x\\|y` |": [
        [
            "div",
            [
                "table",
                ["thead", ["tr", ["th", "a"], ["th", "b"]]],
                ["tbody", ["tr", ["td", "1"], ["td", ["code", "x|y"]]]],
            ],
        ]
    ],
}


@pytest.mark.parametrize("text", CASES)
def test_what_markdown_becomes(page: Any, text: str) -> None:
    assert page.evaluate(TREE, text) == CASES[text]


HOSTILE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "[a](javascript:alert(1))",
    "[a](JaVaScRiPt:alert(1)) [b](data:text/html,<script>alert(1)</script>) [c](vbscript:x) [d](file:///etc/passwd)",
    "![a](https://elsewhere.example/track.png)",
    "[a](//elsewhere.example/x) [b](/state) [c](https://)",
    '```"><script>alert(1)</script>\nx\n```',
    "**<b onclick=alert(1)>x</b>** `<iframe src=//x>`",
    "| <svg onload=alert(1)> |\n|---|\n| <a href=javascript:x> |",
    "&lt;script&gt; &#x6a;avascript:",
    '[x](https://a.example"onmouseover=alert(1))',
]
TAGS = {"p", "h3", "h4", "h5", "h6", "hr", "ul", "ol", "li", "blockquote", "figure", "figcaption", "span", "button"}
TAGS |= {"pre", "code", "table", "thead", "tbody", "tr", "th", "td", "div", "strong", "em", "del", "a"}
ATTRIBUTES = {"href", "title", "target", "rel", "class", "type", "tabindex", "start"}


def check_harmless(parts: list[str]) -> None:
    for part in parts:
        name, is_attribute, value = part.partition("=")
        assert name in (ATTRIBUTES if is_attribute else TAGS), part
        if name == "href":
            assert value.startswith(("https://", "http://", "mailto:")), part


def test_hostile_text_stays_text(page: Any) -> None:
    for text, (parts, shown) in zip(HOSTILE, page.evaluate(PARTS, HOSTILE), strict=True):
        check_harmless(parts)
        if "<" in text:
            assert "<" in shown, "what looks like markup is shown, not dropped"


def test_any_text_gives_harmless_elements(page: Any) -> None:
    draw = random.Random(21)
    pieces = ["*", "**", "_", "`", "```", "\n", "\n\n", "- ", "1. ", "> ", "# ", "|", "|---|", "[", "](", ")", "\\"]
    pieces += ["https://a.example", "javascript:", "<img src=x onerror=a>", " ", "    ", "word", "é", "😀", "~~", "---"]
    texts = ["".join(draw.choices(pieces, k=draw.randrange(1, 60))) for _ in range(300)]
    for text, (parts, shown) in zip(texts, page.evaluate(PARTS, texts), strict=True):
        check_harmless(parts)
        for word in ("word", "é", "😀"):
            assert text.count(word) <= shown.count(word), repr(text)
