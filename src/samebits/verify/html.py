"""A run as one self-contained page: a bar per op and tier, then everything that did not pass."""

from __future__ import annotations

from html import escape

from samebits.verify.proof import TIERS
from samebits.verify.provenance import environment
from samebits.verify.report import STATUSES, Run, totals

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem; color: #1b1f24 }
table { border-collapse: collapse; width: 100% } th, td { text-align: left; padding: .25rem .6rem; vertical-align: top }
tr:nth-child(even) { background: #f5f7f9 } code { font-size: .85em; overflow-wrap: anywhere }
.bar { display: flex; height: .9rem; width: 12rem; border-radius: 3px; overflow: hidden; background: #e3e7eb }
.pass { background: #2da44e } .fail { background: #cf222e } .unsupported { background: #d4a72c }
.unfinished { background: #8250df }
dl { display: grid; grid-template-columns: max-content auto; gap: 0 1rem } dt { color: #57606a } dd { margin: 0 }
"""


def _bar(run: Run, op: str, tier: str) -> str:
    counts = run.counts(op, tier)
    total = sum(counts.values())
    if not total:
        return "-"
    parts = "".join(f'<span class="{status}" style="flex:{counts[status]}"></span>' for status in STATUSES)
    title = ", ".join(f"{counts[s]} {s}" for s in STATUSES if counts[s])
    return f'<div class="bar" title="{title}">{parts}</div>{title}'


def _shown(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def html_page(run: Run) -> str:
    facts = "".join(
        f"<dt>{escape(name.replace('_', ' '))}</dt><dd>{escape(_shown(value))}</dd>"
        for name, value in environment(run.found).items()
        if value not in (None, [], {})
    )
    ops = dict.fromkeys(r.op for r in run.results)
    rows = "".join(
        f"<tr><td><code>{escape(op)}</code></td>" + "".join(f"<td>{_bar(run, op, t)}</td>" for t in TIERS) + "</tr>"
        for op in ops
    )
    others = "".join(
        f"<tr><td>{r.status}</td><td><code>{escape(r.op)}/{escape(r.case)}</code></td><td>{r.tier}</td>"
        f"<td>{escape(r.reason)}<br><code>{escape(r.replay)}</code></td></tr>"
        for r in run.results
        if r.status != "pass"
    )
    tiers = "".join(f"<th>{t}</th>" for t in TIERS)
    details = (
        f"<h2>Not passed</h2><table><tr><th>status</th><th>case</th><th>tier</th><th>reason</th></tr>{others}</table>"
    )
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>samebits verify: {escape(run.found.name)}</title>'
        f"<style>{STYLE}</style><h1>{escape(run.found.name)}: {totals(run)}</h1>"
        f"<p>{escape(str(run.proof))}. {run.seconds:.0f} s.</p><dl>{facts}</dl>"
        f"<h2>By op</h2><table><tr><th>op</th>{tiers}</tr>{rows}</table>{details if others else ''}</html>\n"
    )
