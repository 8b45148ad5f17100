"""Documents that are generated, or that name things in the tree, say what is true."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from samebits.cli.ops_docs import ops_markdown
from samebits.cli.receipt_docs import schema_text
from samebits.core.numerics import NUMERICS_VERSION

ROOT = Path(__file__).parents[1]
PAGES = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", *(f"docs/{p.name}" for p in (ROOT / "docs").glob("*.md"))]


def test_ops_page_is_fresh() -> None:
    assert (ROOT / "docs/ops.md").read_text() == ops_markdown(), "run `make docs`"


def test_schema_of_receipts_is_fresh() -> None:
    assert (ROOT / "docs/receipt.schema.json").read_text() == schema_text(), "run `make docs`"


@pytest.mark.parametrize("page", PAGES)
def test_paths_named_in_a_page_exist(page: str) -> None:
    text = (ROOT / page).read_text()
    named = set(re.findall(r"`((?:src|tests|docs|benchmarks|tools)/[\w./-]+)`", text))
    named |= set(re.findall(r"\]\(([\w./-]+\.md)\)", text))
    base = (ROOT / page).parent
    missing = [name for name in named if not (ROOT / name).exists() and not (base / name).exists()]
    assert missing == []


def test_numerics_page_carries_the_version() -> None:
    assert f"version {NUMERICS_VERSION}" in (ROOT / "docs/numerics.md").read_text()


@pytest.mark.parametrize("page", PAGES)
def test_pictures_are_there_and_small(page: str) -> None:
    named = re.findall(r"!\[[^\]]+\]\(([\w./-]+)\)", (ROOT / page).read_text())
    sizes = {name: ((ROOT / page).parent / name).stat().st_size for name in named}
    assert all(size < 200_000 for size in sizes.values()), sizes
