"""Links of our pages lead somewhere: in a clone, on the site, and in the description that a package index shows."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "packaging"))

import links  # noqa: E402 (packaging/links.py)

SITE_PAGES = [*links.BESIDE, *(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]
PAGES = [*SITE_PAGES, "CHANGELOG.md", "SECURITY.md"]
ON_THE_SITE = {*links.BESIDE.values(), *(path.relative_to(ROOT / "docs").as_posix() for path in ROOT.glob("docs/**/*"))}
ADDRESS = "https://forge.example/samebits"


def targets_of(markdown: str) -> list[tuple[str, str]]:
    """Return the paths and anchors of all relative links and pictures."""
    without_code = re.sub(r"^```.*?^```$|`[^`\n]*`", "", markdown, flags=re.MULTILINE | re.DOTALL)
    found = [(link[3], link[4] or "") for link in links.LINK.finditer(without_code) if links.is_relative(link[3])]
    return found + [(image[1], "") for image in links.IMAGE.finditer(without_code)]


def anchors_of(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and mkdocs make them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {"#" + re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES)
def test_relative_links_resolve_in_the_clone(page: str) -> None:
    broken = []
    for target, anchor in targets_of((ROOT / page).read_text()):
        path = (ROOT / page).parent / target
        if not path.exists() or (anchor and anchor not in anchors_of(path)):
            broken.append(target + anchor)
    assert broken == []


@pytest.mark.parametrize("page", SITE_PAGES)
def test_relative_links_resolve_on_the_site(page: str) -> None:
    targets = {target for target, _ in targets_of(links.for_the_site((ROOT / page).read_text(), page))}
    assert targets <= ON_THE_SITE


def test_the_readme_s_links_lead_into_the_repository_where_it_has_an_address() -> None:
    readme = (ROOT / "README.md").read_text()
    shown = links.for_a_package(readme, ADDRESS)
    assert targets_of(shown) == []
    for target, anchor in targets_of(readme):
        assert any(f"{ADDRESS}/{kind}/main/{target}{anchor}" in shown for kind in ("blob", "raw")), target


def test_without_an_address_no_relative_link_is_left() -> None:
    readme = (ROOT / "README.md").read_text()
    shown = links.for_a_package(readme, None)
    assert len(targets_of(readme)) > 20
    assert targets_of(shown) == []
    assert "](" not in shown


def test_the_package_s_description_is_made_of_the_readme() -> None:
    made = links.dynamic_metadata("readme", {})
    assert made["content-type"] == "text/markdown"
    assert made["text"].startswith("# Samebits")
    assert targets_of(made["text"]) == []
    with pytest.raises(ValueError, match="readme"):
        links.dynamic_metadata("version", {})
