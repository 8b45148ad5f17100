"""docs/defects.md is what the planted defects and caught.json say, and shows all of both."""

from __future__ import annotations

import json
from pathlib import Path

from defects import KLASSES, PLANTED
from defects_page import CAUGHT, defects_markdown

ROOT = Path(__file__).parents[2]


def test_the_page_is_fresh() -> None:
    assert (ROOT / "docs/defects.md").read_text() == defects_markdown(), "run `make docs`"


def test_every_defect_has_a_row_with_its_case() -> None:
    rows = {line.split("`")[1]: line for line in defects_markdown().splitlines() if line.startswith("| `")}
    assert rows.keys() == PLANTED.keys()
    for name, found in json.loads(CAUGHT.read_text()).items():
        assert f"<code>{found['case']}</code>" in rows[name] or f'title="{found["case"]}"' in rows[name]
        assert rows[name].endswith(f" | {found['check']} |")
        assert rows[name].count("|") == 6


def test_every_class_has_a_section() -> None:
    headings = [
        line.removeprefix("## ").partition(":")[0] for line in defects_markdown().splitlines() if line[:3] == "## "
    ]
    assert headings == [klass.capitalize() for klass in KLASSES]
