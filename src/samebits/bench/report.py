"""A model's run as a table for people."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from samebits.bench.ceiling import ceiling_source
from samebits.bench.model_run import ModelRun
from samebits.bench.results import RowResult, Spread, Timed

BAR_CHARS = 12
MIB = 1 << 20


def number(value: float) -> str:
    """Three digits at least, and no exponent however large."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def spread_text(spread: Spread) -> str:
    """ "245 (238..251)"."""
    return f"{number(spread.median)} ({number(spread.low)}..{number(spread.high)})"


def text_bar(value: float, largest: float) -> str:
    """A bar in eighths of a character."""
    eighths = round(8 * BAR_CHARS * value / largest) if largest > 0 else 0
    return "█" * (eighths // 8) + ("▏▎▍▌▋▊▉"[eighths % 8 - 1] if eighths % 8 else "")


def print_run(console: Console, run: ModelRun) -> None:
    for line in head_lines(run):
        console.print(escape(line), highlight=False, soft_wrap=True)
    console.print(_table(run))
    for name, facts in run.peer_facts.items():
        console.print(escape(peer_line(name, facts)), highlight=False)
    for result in run.results:
        for peer in result.peers:
            if not peer.seconds:
                console.print(
                    f"[yellow]not measured[/] {escape(f'{result.row.label}: {peer.reason}')}", highlight=False
                )
    for line in run.left_out:
        console.print(f"[yellow]left out[/] {escape(line)}", highlight=False)
    for line in run.fallbacks[:3]:
        console.print(f"[yellow]fallback[/] {escape(line)}", highlight=False)


def print_ratio(console: Console, result: RowResult, peer_facts: str) -> None:
    """One row against one peer, in lines."""
    console.print(escape(f"{result.row.label}, {result.row.num_tokens} new tokens each"), highlight=False)
    for timed in (result.ours, *result.peers):
        if not timed.seconds:
            console.print(f"[yellow]not measured[/] {escape(timed.reason)}", highlight=False)
            continue
        ratio = "" if timed is result.ours else f", ours {spread_text(result.ratio(timed))} x"
        setting = f" {timed.setting}" if timed.setting else ""
        rate = f"{spread_text(timed.rate(result.row))} new tokens/s"
        console.print(escape(f"  {timed.side}{setting}: {rate}{ratio}"), highlight=False)
    console.print(escape(peer_facts), highlight=False)


def head_lines(run: ModelRun) -> list[str]:
    """What ran where, and what loading cost."""
    s, f = run.settings, run.footprint
    cache = s.k_format if s.k_format == s.v_format else f"{s.k_format}/{s.v_format}"
    return [
        f"{Path(s.model).name} on {run.found.name}, numerics {run.tier}, threads {s.threads}, KV {cache}; "
        f"medians of {run.repeats} rounds (lowest..highest)",
        f"load {f.load_seconds:.2f} s, first token after {f.first_token_seconds:.2f} s ({f.first_prompt}-token prompt, "
        "imports not counted)",
        f"resident {f.resident_bytes / MIB:.0f} MiB above the imported interpreter (peak {f.peak_bytes / MIB:.0f}, "
        f"tokenizer {f.tokenizer_bytes / MIB:.0f}) = {f.ratio:.2f} x file {f.file_bytes / MIB:.0f} "
        f"+ KV of {f.context_tokens} tokens {f.kv_bytes / MIB:.0f}",
        *([f"warning: {run.warning}"] if run.warning else []),
    ]


def peer_line(name: str, facts: Mapping[str, Any]) -> str:
    """A peer's version and what matters of how it was built; JSON has the rest."""
    parts = [facts["version"], *([facts["device"]] if facts.get("device") else [])]
    if "amx" in facts:
        parts.append("AMX on" if facts["amx"] else "AMX off")
    if "weights" in facts:
        parts.append(f"weights: {facts['weights']}")
    return f"{name}: {', '.join(parts)}"


def _table(run: ModelRun) -> Table:
    title = f"tokens/s; decode: weights read against a {ceiling_source()} read of as many bytes in the same round"
    table = Table(title=title)
    table.add_column("row")
    table.add_column("tokens/s", justify="right")
    if not run.peer_facts:
        table.add_column("")
    table.add_column("weights GB/s", justify="right")
    table.add_column("of ceiling", justify="right")
    for name in run.peer_facts:
        table.add_column(name, justify="right")
        table.add_column("ratio", justify="right")
    for result in run.results:
        largest = max(r.ours.rate(r.row).median for r in run.results if r.row.kind == result.row.kind)
        cells = [result.row.label, spread_text(result.ours.rate(result.row))]
        if not run.peer_facts:
            cells.append(text_bar(result.ours.rate(result.row).median, largest))
        cells += _ceiling_cells(result)
        by_name = {peer.side: peer for peer in result.peers}
        for name in run.peer_facts:
            cells += _peer_cells(result, by_name[name])
        table.add_row(*cells)
    return table


def _ceiling_cells(result: RowResult) -> list[str]:
    if (rate := result.weight_rate) is None or (share := result.of_ceiling) is None:
        return ["", ""]
    return [f"{rate.median / 1e9:.3g}", f"{share.median:.0%} ({share.low:.0%}..{share.high:.0%})"]


def _peer_cells(result: RowResult, peer: Timed) -> list[str]:
    if not peer.seconds:
        return ["-", "-"]
    ratio = result.ratio(peer)
    colour = "green" if ratio.median >= 1 else "red"
    return [
        f"{spread_text(peer.rate(result.row))} {escape(peer.setting)}",
        f"[{colour}]{ratio.median:.2f}x[/] ({ratio.low:.2f}..{ratio.high:.2f})",
    ]
