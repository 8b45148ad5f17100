"""Links of our pages where they are read outside the repository: on the site, and in the package's description."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
# Pages of the site that do not lie in docs/, and their names there.
BESIDE = {"README.md": "index.md", "ARCHITECTURE.md": "ARCHITECTURE.md", "CONTRIBUTING.md": "CONTRIBUTING.md"}
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")
IMAGE = re.compile(r'<img src="(?!https?:)([^"]+)"[^>]*>\n*')


def is_relative(target: str) -> bool:
    """Return whether a link's target is a path, and not an address."""
    return "://" not in target and not target.startswith("mailto:")


def repository() -> str | None:
    """Return the repository's address from [project.urls] of pyproject.toml, or None while it has no public one."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return project.get("urls", {}).get("Repository")


def for_the_site(markdown: str, page: str) -> str:
    """Return a page, named by its path in the repository, with links between pages that all lie in one folder.

    A link to a file that is not on the site becomes its text. A link to a missing file stays, and mkdocs reports it.
    """

    def rewritten(link: re.Match[str]) -> str:
        mark, text, target, anchor = link.groups(default="")
        path = ((ROOT / page).parent / target).resolve()
        if not is_relative(target) or not path.exists():
            return link.group()
        name = path.relative_to(ROOT).as_posix()
        if name in BESIDE or name.startswith("docs/"):
            return f"{mark}[{text}]({BESIDE.get(name, name.removeprefix('docs/'))}{anchor})"
        return text

    shown = LINK.sub(rewritten, markdown)
    return shown.replace('<img src="docs/', '<img src="') if page in BESIDE else shown


def for_a_package(markdown: str, address: str | None) -> str:
    """Return README.md with links into the repository at `address`; without one, with their texts and no pictures."""

    def rewritten(link: re.Match[str]) -> str:
        mark, text, target, anchor = link.groups(default="")
        if not is_relative(target):
            return link.group()
        if address is None:
            return "" if mark else text
        return f"{mark}[{text}]({address}/{'raw' if mark else 'blob'}/main/{target}{anchor})"

    def picture(image: re.Match[str]) -> str:
        return "" if address is None else image[0].replace(image[1], f"{address}/raw/main/{image[1]}")

    return IMAGE.sub(picture, LINK.sub(rewritten, markdown))


def dynamic_metadata(field: str, settings: dict[str, Any]) -> dict[str, str]:
    """Return the long description for scikit-build-core, which calls this as it builds the package's metadata."""
    if field != "readme" or settings:
        raise ValueError(f"links.py makes the field readme without settings, not {field} with {settings}")
    return {"content-type": "text/markdown", "text": for_a_package((ROOT / "README.md").read_text(), repository())}
