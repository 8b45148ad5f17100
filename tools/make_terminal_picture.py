"""Takes docs/pictures/receipt.png: real commands that make a receipt, replay it, and replay one that was changed.

With the extra `dev` installed, a chromium on the path and the default model pulled:

    python tools/make_terminal_picture.py
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from html import escape
from pathlib import Path

from make_pictures import FOLDER, MAX_BYTES
from playwright.sync_api import sync_playwright

COMMANDS = (
    'samebits generate "The capital of France is" --temperature 0.8 --seed 7 --max-tokens 24 --receipt answer.json',
    "samebits replay answer.json",
    "samebits replay answer.json --backend reference --tokens 4",
    """sed 's/"temperature":0.8/"temperature":0.7/' answer.json > changed.json; samebits replay changed.json""",
)
STYLE = """
body { margin: 0; background: #14181d; width: 1180px } pre { margin: 0; padding: 18px 22px; color: #d7dde4;
font: 15px/1.5 ui-monospace, "DejaVu Sans Mono", monospace; white-space: pre-wrap; overflow-wrap: anywhere }
b { color: #7ee787; font-weight: normal } i { color: #8b949e; font-style: normal }
"""


def played(command: str, folder: str) -> str:
    """A command and what it prints, as markup; what is for programs' eyes alone is not shown."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    ended = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env={**os.environ, "PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return f"<i>$</i> <b>{escape(command)}</b>\n{escape(ended.stdout.strip())}\n"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        shown = "\n".join(played(command, folder) for command in COMMANDS)
    print(shown)
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []  # root may not have one
    path = FOLDER / "receipt.png"
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=arguments)
        page = browser.new_page(viewport={"width": 1180, "height": 200})
        page.set_content(f"<style>{STYLE}</style><pre>{shown}</pre>")
        page.screenshot(path=path, full_page=True)
        browser.close()
    if path.stat().st_size > MAX_BYTES:
        raise SystemExit(f"{path}: got {path.stat().st_size} bytes; needs at most {MAX_BYTES}")
    print(path, path.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
