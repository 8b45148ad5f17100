"""A real browser for the tests of the page: Debian's chromium, driven by playwright."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@contextmanager
def real_browser() -> Iterator[Any]:
    """A browser while a block runs; the test is skipped where there is none.

    Not for a whole session: playwright keeps an event loop in its thread, and tests that run one of their own need it.
    """
    playwright = pytest.importorskip("playwright.sync_api", reason="no playwright here; it is in the extra dev")
    if CHROMIUM is None:
        pytest.skip("no chromium here; Debian's package is enough")
    arguments = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []  # root may not have one
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=arguments)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def opened(browser: Any, url: str, path: str = "/", **options: Any) -> Iterator[Any]:
    """A page in a context of its own, ready for use.

    Afterwards: nothing was thrown in it, nothing broke its policy, and it asked nobody else for anything.
    """
    options = {"viewport": {"width": 1280, "height": 800}, **options}
    with browser.new_context(**options) as context:
        page, faults, asked = context.new_page(), list[str](), list[str]()
        page.set_default_timeout(60_000)
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda message: faults.append(message.text) if "Policy" in message.text else None)
        page.on("request", lambda request: asked.append(request.url))
        page.goto(url + path)
        page.get_by_text("samebits-").wait_for()
        yield page
        assert faults == []
        assert [u for u in asked if not u.startswith((f"{url}/", f"blob:{url}/"))] == []


def say(page: Any, text: str) -> None:
    """Sends a message and waits until its answer, or what stands in its place, is there."""
    page.get_by_label("Message", exact=True).fill(text)
    page.get_by_role("button", name="Send", exact=True).click()
    wait_until_done(page)


def wait_until_done(page: Any) -> None:
    page.locator("#send:enabled").wait_for()


def posted(page: Any, path: str) -> list[dict[str, Any]]:
    """The bodies that go to a path from now on, as they are sent."""
    bodies: list[dict[str, Any]] = []
    page.on("request", lambda r: bodies.append(json.loads(r.post_data)) if r.url.endswith(path) else None)
    return bodies
