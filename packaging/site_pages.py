"""Hooks of the documentation site: pages beside docs/ are on it too, and links to files that are not are plain text."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

sys.path.insert(0, str(Path(__file__).parent))  # mkdocs loads a hook by its path
from links import BESIDE, ROOT, for_the_site


def on_files(files: Files, *, config: Any) -> Files:
    """Adds the pages that lie beside docs/."""
    for source, target in BESIDE.items():
        files.append(File.generated(config, target, content=(ROOT / source).read_text()))
    return files


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Files) -> str:
    """Links as they are on the site, where all pages lie in one folder."""
    sources = {target: source for source, target in BESIDE.items()}
    return for_the_site(markdown, sources.get(page.file.src_uri, f"docs/{page.file.src_uri}"))
