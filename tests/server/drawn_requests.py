"""Draws requests whose streams are hard to join: characters of several tokens, stop strings that cut, reasoning, calls.

Scripts hold an answer to one text with a regular expression, so that reasoning, calls and characters of several tokens
come up; without a script the tiny model draws bytes, most of which are not UTF-8.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

CALL = '<tool_call>\n{"name": "weather", "arguments": {"sky": "%s"}}\n</tool_call>'
TEXTS = ("hello ", "é", "😀", "a/b", "日本", "x\n", "👩‍🚀!", "\ufffd")
PARTIAL = tuple("😀é€".encode()) + tuple(b"ab \n")  # bytes that make characters in some orders alone


@dataclass(frozen=True)
class DrawnRequest:
    """A request in no protocol's words.

    script         the text that the answer is held to
    is_forced      whether the answer must call the function
    stop_byte      a byte whose token ends the answer
    shows_special  whether control tokens are part of the text
    allowed        the only bytes that may be drawn
    n              the number of choices, of protocols that have several
    """

    prompt: str
    script: str | None
    has_tools: bool
    is_forced: bool
    stop: str | None
    stop_byte: int | None
    includes_stop: bool
    shows_special: bool
    max_tokens: int
    top: int
    seed: int
    allowed: tuple[int, ...] | None
    n: int


texts = st.lists(st.sampled_from(TEXTS), min_size=1, max_size=3).map("".join)
calls = st.sampled_from(["blue", "grey", "😀"]).map(lambda sky: CALL % sky)
thoughts = st.one_of(st.just(""), texts.map(lambda text: f"<think>{text}</think>\n"))
scripts = st.builds(lambda thought, rest: thought + "".join(rest), thoughts, st.lists(texts | calls, max_size=3))


@st.composite
def drawn_requests(draw: st.DrawFn) -> DrawnRequest:
    script = draw(st.one_of(st.none(), scripts.filter(bool)))
    base = script or "".join(TEXTS)
    start = draw(st.integers(0, len(base) - 1))
    most = len(base.encode()) + 2 if script else 24
    is_forced = script is None and draw(st.booleans())
    return DrawnRequest(
        prompt=draw(texts),
        script=script,
        has_tools=script is not None and draw(st.booleans()),
        is_forced=is_forced,
        stop=draw(st.one_of(st.none(), st.integers(1, 3).map(lambda count: base[start : start + count]))),
        stop_byte=draw(st.one_of(st.none(), st.none(), st.sampled_from(base.encode()))),
        includes_stop=draw(st.booleans()),
        shows_special=draw(st.booleans()),
        max_tokens=draw(st.one_of(st.just(most), st.integers(1, most))),
        top=draw(st.integers(0, 3)),
        seed=draw(st.integers(0, 1000)),
        allowed=None if script or is_forced else draw(st.one_of(st.none(), st.just(PARTIAL))),
        n=draw(st.integers(1, 2)),
    )
