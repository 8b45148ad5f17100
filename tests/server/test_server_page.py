"""The page in a real browser: it talks, shows pages and steps, and loads nothing from elsewhere."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import Running

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]


@pytest.mark.skipif(BROWSER is None, reason="no chromium here")
def test_the_page_chats_and_draws(server: Running, tmp_path: Path) -> None:
    """`?say=...` is not part of the page: the test types through a small page of its own that frames nothing."""
    command = [
        str(BROWSER),
        *FLAGS,
        f"--user-data-dir={tmp_path}",
        "--virtual-time-budget=8000",
        "--dump-dom",
        f"{server.url}/#say=hello",
    ]
    dom = subprocess.run(command, capture_output=True, text=True, timeout=120).stdout
    assert "samebits-" in dom
    assert "held" in dom
