"""What an audit found: a table for the terminal, JSON for programs, one self-contained page for people."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from samebits.cli.replay import Entry, as_json_of
from samebits.core.printable import printable
from samebits.verify.html import STYLE

if TYPE_CHECKING:
    from rich.console import Console

SAME, DIFFERS, NOT_CHECKED = "same bits", "differs", "not checked"
KINDS = {SAME: "pass", DIFFERS: "fail", NOT_CHECKED: "unsupported"}  # and the page's colours


def fate(entry: Entry) -> str:
    """How a replayed receipt fared."""
    verdict = entry.verdict
    if verdict is not None and verdict.is_same:
        return SAME
    return DIFFERS if verdict is not None and verdict.is_checked else NOT_CHECKED


@dataclass(frozen=True)
class Audit:
    """A folder, how many receipts it has, how some of them were chosen, and these with their verdicts."""

    folder: str
    num_receipts: int
    sample: str
    seed: int
    backend: str
    entries: list[Entry]

    def counts(self) -> Counter[str]:
        return Counter(fate(entry) for entry in self.entries)

    def by_model(self) -> dict[str, Counter[str]]:
        """How the receipts of each model fared; those that cannot be read have none."""
        found: dict[str, Counter[str]] = {}
        for entry in self.entries:
            name = printable(entry.receipt.model.name) if entry.receipt else "-"
            found.setdefault(name, Counter())[fate(entry)] += 1
        return dict(sorted(found.items()))

    @property
    def num_tokens(self) -> int:
        """Tokens of answers that were made again with the same bits."""
        return sum(entry.verdict.num_tokens for entry in self.entries if entry.verdict)

    def headline(self) -> str:
        counts = self.counts()
        said = ", ".join(f"{counts[kind]} {kind}" for kind in KINDS if counts[kind])
        return f"{len(self.entries)} of {self.num_receipts} receipts: {said}"

    def others(self) -> list[tuple[Entry, str]]:
        """Those that are not the same, each with its line."""
        return [
            (entry, entry.verdict.line(entry.receipt, self.backend))
            for entry in self.entries
            if entry.verdict is not None and not entry.verdict.is_same
        ]

    def as_json(self) -> dict[str, Any]:
        return {
            "folder": self.folder,
            "num_receipts": self.num_receipts,
            "num_replayed": len(self.entries),
            "sample": self.sample,
            "seed": self.seed,
            "backend": self.backend,
            "num_tokens": self.num_tokens,
            "counts": {kind.replace(" ", "_"): self.counts()[kind] for kind in KINDS},
            "receipts": [{"file": entry.where, **as_json_of(entry)} for entry in self.entries],
        }


def show(console: Console, audit: Audit, most: int) -> None:
    """A table for people, and the first `most` receipts that are not the same."""
    table = Table(title=Text(f"receipts of {printable(audit.folder)}, replayed on {audit.backend}"))
    table.add_column("model")
    for kind in KINDS:
        table.add_column(kind, justify="right")
    for name, counts in audit.by_model().items():
        table.add_row(Text(name), *(str(counts[kind]) for kind in KINDS))
    console.print(table)
    others = audit.others()
    for entry, line in others[:most]:
        console.print(f"{printable(entry.where, None)}: {line}", highlight=False, markup=False, soft_wrap=True)
    if len(others) > most:
        console.print(f"and {len(others) - most} more", highlight=False)
    told = f"{audit.headline()}; {audit.num_tokens} tokens made again; sample {audit.sample}, seed {audit.seed}"
    console.print(told, highlight=False, markup=False, soft_wrap=True)


def _bar(counts: Counter[str]) -> str:
    parts = "".join(f'<span class="{colour}" style="flex:{counts[kind]}"></span>' for kind, colour in KINDS.items())
    title = ", ".join(f"{counts[kind]} {kind}" for kind in KINDS if counts[kind])
    return f'<div class="bar" title="{title}">{parts}</div>{title}'


def html_page(audit: Audit) -> str:
    """The report as one page that loads nothing."""
    facts = {
        "folder": printable(audit.folder, None),
        "receipts": audit.num_receipts,
        "replayed": len(audit.entries),
        "sample": f"{audit.sample}, seed {audit.seed}",
        "backend": audit.backend,
        "tokens made again": audit.num_tokens,
    }
    told = "".join(f"<dt>{name}</dt><dd>{escape(str(value))}</dd>" for name, value in facts.items())
    models = "".join(
        f"<tr><td><code>{escape(name)}</code></td><td>{_bar(counts)}</td></tr>"
        for name, counts in audit.by_model().items()
    )
    rows = "".join(
        f"<tr><td>{fate(entry)}</td><td><code>{escape(where)}</code></td><td>{escape(line)}</td></tr>"
        for entry, line in audit.others()
        for where in (printable(entry.where, None),)
    )
    details = f"<h2>Not the same</h2><table><tr><th>fate</th><th>receipt</th><th>why</th></tr>{rows}</table>"
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>samebits audit</title>'
        f"<style>{STYLE}</style><h1>{escape(audit.headline())}</h1><dl>{told}</dl>"
        f"<h2>By model</h2><table><tr><th>model</th><th>receipts</th></tr>{models}</table>{details if rows else ''}"
        "</html>\n"
    )
