"""The documentation site shows every page, without a broken link, and loads nothing from elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
NOT_IN_DOCS = {"index.md", "ARCHITECTURE.md", "CONTRIBUTING.md"}  # which packaging/site_pages.py brings


def pages_of(nav: Any) -> list[str]:
    """The pages in a part of the navigation, in order."""
    if isinstance(nav, str):
        return [nav]
    parts = nav.values() if isinstance(nav, dict) else nav
    return [page for part in parts for page in pages_of(part)]


def test_every_page_is_in_the_navigation_once() -> None:
    pages = pages_of(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"])
    docs = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert sorted(pages) == sorted(docs | NOT_IN_DOCS)


@pytest.mark.skipif(find_spec("mkdocs") is None, reason="mkdocs is not installed: `make site` installs it")
def test_the_site_builds_strictly_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=os.environ | {"NO_COLOR": "1"})
    assert done.returncode == 0, done.stdout + done.stderr
    pages = [path.read_text() for path in tmp_path.rglob("*.html")]
    loaded = {tag for page in pages for tag in re.findall(r"<(?:script|link|img|iframe)\b[^>]*>", page)}
    assert len(pages) > len(NOT_IN_DOCS)
    assert [tag for tag in loaded if re.search(r"""(?:src|href)=["']?(?:https?:)?//""", tag)] == []
    styles = "".join(path.read_text() for path in tmp_path.rglob("*.css"))
    assert re.findall(r"url\([\"']?(?:https?:)?//[^)]*\)", styles) == []
