"""Hooks of the documentation site: pages beside docs/ are on it too, and links to files that are not are plain text."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
BESIDE = {"README.md": "index.md", "ARCHITECTURE.md": "ARCHITECTURE.md", "CONTRIBUTING.md": "CONTRIBUTING.md"}
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")


def on_files(files: Files, *, config: Any) -> Files:
    """Adds the pages that lie beside docs/."""
    for source, target in BESIDE.items():
        files.append(File.generated(config, target, content=(ROOT / source).read_text()))
    return files


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Files) -> str:
    """Links as they are on the site, where all pages lie in one folder."""
    lies_beside = page.file.src_uri in BESIDE.values()

    def on_the_site(link: re.Match[str]) -> str:
        mark, text, target, anchor = link.groups(default="")
        if "://" in target or target.startswith("mailto:"):
            return link.group()
        path = (ROOT / ("" if lies_beside else "docs") / target).resolve()
        if not path.exists():  # mkdocs says so, and which page it stands on
            return link.group()
        name = path.relative_to(ROOT).as_posix()
        if name in BESIDE or name.startswith("docs/"):
            return f"{mark}[{text}]({BESIDE.get(name, name.removeprefix('docs/'))}{anchor})"
        return text  # a file of the repository

    shown = LINK.sub(on_the_site, markdown)
    return shown.replace('<img src="docs/', '<img src="') if lies_beside else shown
