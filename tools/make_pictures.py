"""Takes the README's pictures of the page: docs/pictures/*.png.

Serve the default model first (`make serve`), then, with the extra `dev` installed and a chromium on the path:

    python tools/make_pictures.py http://127.0.0.1:8000
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

FOLDER = Path(__file__).parents[1] / "docs/pictures"
SIZE = {"width": 1200, "height": 760}
MAX_BYTES = 200_000


def take(page: Page, name: str) -> None:
    """A picture of what is on the screen; it stays small, so that a clone does."""
    path = FOLDER / f"{name}.png"
    page.screenshot(path=path)
    if path.stat().st_size > MAX_BYTES:
        raise SystemExit(f"{path}: got {path.stat().st_size} bytes; needs at most {MAX_BYTES}")
    print(path, path.stat().st_size, "bytes")


def chat(page: Page) -> None:
    page.get_by_label("Message", exact=True).fill("Write a Python function that reverses a string.")
    page.get_by_role("button", name="Send", exact=True).click()
    page.locator("#send:enabled").wait_for()
    take(page, "chat")


def batch(page: Page) -> None:
    """The second answer is under way, in a full batch."""
    page.get_by_role("link", name="Prove it").click()
    page.get_by_role("button", name="Prove it").click()
    page.locator("#among .plain", has_text=re.compile(".{80}")).wait_for()
    take(page, "batch")
    page.locator("#proof-start:enabled").wait_for()


def proof(page: Page) -> None:
    page.get_by_role("link", name="Prove it").click()
    page.get_by_role("button", name="Prove it").click()
    page.locator("#verdict.same").wait_for()
    page.get_by_text("0 running, 0 waiting").wait_for()  # the pool has emptied again
    take(page, "proof")


def main(url: str) -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []  # root may not have one
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=arguments)
        for scheme, view in (("light", chat), ("light", proof), ("dark", batch)):
            page = browser.new_page(viewport=SIZE, color_scheme=scheme)
            page.set_default_timeout(300_000)
            page.goto(url)
            page.get_by_text("samebits-").wait_for()
            view(page)
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1])
