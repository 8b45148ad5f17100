"""Stop strings: against a plain definition, wherever the pieces of a text end."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from samebits.engine.text import StopText

LETTERS = st.text("ab", max_size=40)
STOPS = st.lists(st.text("ab", min_size=1, max_size=7), min_size=1, max_size=4)


def shown_of(text: str, stops: list[str]) -> tuple[str, bool]:
    """What may be shown of a text: up to the stop that is complete first, or all that cannot become one."""
    for end in range(len(text) + 1):
        complete = [s for s in stops if text[:end].endswith(s)]
        if complete:
            return text[: end - max(map(len, complete))], True
    held = max((n for s in stops for n in range(len(s)) if text.endswith(s[:n])), default=0)
    return text[: len(text) - held], False


@given(LETTERS, STOPS, st.data())
@settings(max_examples=300, deadline=None, derandomize=True)
def test_after_every_piece_all_that_is_safe_is_shown(text: str, stops: list[str], data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=6)))
    matcher, shown = StopText(tuple(stops)), ""
    for start, stop in zip([0, *cuts], [*cuts, len(text)], strict=True):
        piece, is_met = matcher.push(text[start:stop])
        shown += piece
        assert (shown, is_met) == shown_of(text[:stop], stops)
        if is_met:
            assert matcher.finish() == ""
            return
    assert shown + matcher.finish() == text


def test_long_strings_that_nearly_match_hold_back_no_more_than_they_must() -> None:
    period, stop = "abcab", "abcab" * 300 + "!"
    matcher, shown = StopText((stop, "b" * 1024, "zz")), ""
    for i in range(4000):
        piece, is_met = matcher.push(period[i % 5])
        assert not is_met
        shown += piece
    assert len(shown) == 4000 - 1500  # the longest prefix that is still possible
    assert matcher.push("!") == ("", True)
    assert shown == (period * 800)[:2500]
