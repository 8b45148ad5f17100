"""What every page of a measurement must be."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any


def check_page(text: str) -> None:
    """Every tag is closed, and nothing is fetched from anywhere."""
    open_tags: list[str] = []

    class Checker(HTMLParser):
        def handle_starttag(self, tag: str, attrs: Any) -> None:
            if tag != "meta":
                open_tags.append(tag)

        def handle_endtag(self, tag: str) -> None:
            assert open_tags.pop() == tag

    Checker().feed(text)
    assert open_tags == []
    assert not re.search(r"https?://|<script|<link|<img|@import|url\(", text)
