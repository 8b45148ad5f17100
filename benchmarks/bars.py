"""Every bar of the native CPU backend in one go: `python benchmarks/bars.py --json bars.json [--only TEXT ...]`.

Results are kept in the JSON file as they come; a later call measures what is missing, so a slow machine can go in
parts. A ratio is ours over the peer's, round by round in the same run. `--list` names the bars.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from random_model import write_model
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from samebits.backends.discovery import default_name
from samebits.bench.ceiling import busy_line, ceiling_source, read_ceiling, usable_threads
from samebits.bench.footprint import measure
from samebits.bench.measured_rows import SHORT_PROMPT
from samebits.bench.ours import Ours, Settings, weight_bytes
from samebits.bench.peer import Peer, open_peer
from samebits.bench.report import peer_line, spread_text
from samebits.bench.results import Row, RowResult, Spread
from samebits.bench.rounds import measure_row
from samebits.bench.shapes import SHAPES
from samebits.core.errors import SamebitsError, Unavailable
from samebits.core.files import write_json
from samebits.loaders.cache import cache_dir

SHAPE, FORMATS = "tinyllama-1.1b", ("q4_0", "q8_0", "q4_k")
DECODE_TOKENS = 32
DECODE = Row("decode", DECODE_TOKENS)
DEEP = Row("decode", DECODE_TOKENS, depth=2048)
FEW = Row("decode", DECODE_TOKENS, num_sequences=8, depth=SHORT_PROMPT)
MANY = Row("decode", DECODE_TOKENS, num_sequences=32, depth=SHORT_PROMPT)
SHORT, LONG = Row("prefill", 512), Row("prefill", 4096)
AGAINST = (  # row, peer, how many times as fast we must be: on SmolLM2, on the 1.1B model
    (DECODE, "llama.cpp", 1.4, 1.0),
    (DEEP, "llama.cpp", 3.0, 3.0),
    (FEW, "llama.cpp", 2.2, 2.2),
    (MANY, "llama.cpp", 2.2, 2.2),
    (SHORT, "llama.cpp", None, None),
    (LONG, "llama.cpp", 1.5, 1.5),
    (SHORT, "transformers", 1.0, 1.0),
)
MEMORY, CHAT_SECONDS = 1.15, 1.0


@dataclass(frozen=True)
class Bar:
    """One figure to reach: `peer` for a ratio, else `what` says which other figure of the model it is."""

    model: str
    what: str
    need: float | None = None
    at_most: bool = False
    row: Row | None = None
    peer: str = ""

    @property
    def name(self) -> str:
        return f"{self.model}: {self.what}"

    def verdict(self, median: float) -> str:
        if self.need is None:
            return ""
        return "met" if (median <= self.need if self.at_most else median >= self.need) else "missed"


def all_bars() -> Iterator[Bar]:
    for model in ("smollm2", *(f"{SHAPE}-{fmt}" for fmt in FORMATS)):
        is_default = model == "smollm2"
        for row, peer, default_need, large_need in AGAINST:
            need = default_need if is_default else large_need
            yield Bar(model, f"{row.label} / {peer}", need, row=row, peer=peer)
        yield Bar(model, "decode / read ceiling", row=DECODE)
        yield Bar(model, "resident / (file + KV)", MEMORY, at_most=True)
        if is_default:
            yield Bar(model, "seconds to chat's first token", CHAT_SECONDS, at_most=True)


class Book:
    """Results by bar, written after each one."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.entries: dict[str, Any] = json.loads(path.read_text()) if path and path.exists() else {}

    def add(self, bar: Bar, value: Spread, **details: Any) -> None:
        verdict = bar.verdict(value.median)
        entry = {"value": asdict(value), "need": bar.need, "at_most": bar.at_most, "verdict": verdict, **details}
        self.entries[bar.name] = entry
        if self.path:
            write_json(self.path, self.entries)


def model_path(model: str, folder: Path, console: Console) -> str:
    """The default model's name, or the file of a random one, made if it is not there."""
    if model == "smollm2":
        return model
    path = folder / f"{model}.gguf"
    if not path.exists():
        console.print(f"making {path.name}", highlight=False)
        folder.mkdir(parents=True, exist_ok=True)
        write_model(SHAPES[SHAPE], model.removeprefix(f"{SHAPE}-"), path)
    return str(path)


def chat_seconds(settings: Settings) -> float:
    """From the start of `samebits chat` to the first byte of its answer."""
    options = ["--model", settings.model, "--backend", settings.backend, "--threads", str(settings.threads)]
    options += ["--numerics", settings.numerics] if settings.numerics else []
    command = [sys.executable, "-m", "samebits.cli.main", "chat", "Why is the sky blue?", "--max-tokens", "1", *options]
    started = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0) as process:
        first = process.stdout.read(1) if process.stdout else b""
        seconds = time.perf_counter() - started
        _, errors = process.communicate()
    if not first:
        raise Unavailable(f"chat: {errors.decode().strip().splitlines()[-1]}")
    return seconds


def measure_others(bars: Sequence[Bar], settings: Settings, repeats: int, book: Book) -> None:
    """What needs a fresh process, done before this one holds a model."""
    for bar in (b for b in bars if b.row is None):
        if "chat" in bar.what:
            chat_seconds(settings)  # fills the file cache
            book.add(bar, Spread.of([chat_seconds(settings) for _ in range(repeats)]))
        else:
            footprint = measure(settings)
            book.add(bar, Spread.of([footprint.ratio]), footprint=asdict(footprint))


def measure_rows(bars: Sequence[Bar], settings: Settings, asked: argparse.Namespace, book: Book) -> Iterator[str]:
    """Rows of one model, peer after peer; yields a line for each peer that failed."""
    rows = [bar.row for bar in bars if bar.row is not None]
    if not rows:
        return
    checkpoint = settings.open()
    ours, touched = Ours(settings, checkpoint, rows), weight_bytes(checkpoint)

    def run(row: Row, peers: list[Peer]) -> RowResult:
        return measure_row(
            row, ours, peers, asked.repeats, touched, lambda: 1e9 * read_ceiling(touched, settings.threads)
        )

    for bar in bars:
        if bar.row and not bar.peer and (share := (result := run(bar.row, [])).of_ceiling):
            book.add(bar, share, ceiling_source=ceiling_source(), **result.as_json())
    for name in dict.fromkeys(bar.peer for bar in bars if bar.peer):
        try:
            with closing(open_peer(name, asked.peer_python, checkpoint, settings)) as peer:
                for bar in (b for b in bars if b.peer == name):
                    result = run(bar.row or DECODE, [peer])
                    (theirs,) = result.peers
                    if not theirs.seconds:
                        raise Unavailable(theirs.reason)
                    book.add(bar, result.ratio(theirs), peer=peer_line(name, peer.facts), **result.as_json())
        except Unavailable as error:
            yield str(error)


def print_book(console: Console, bars: Sequence[Bar], book: Book) -> None:
    table = Table(title="ratios above 1: we are faster; (lowest..highest) of the rounds")
    for column in ("model", "figure", "value", "bar", "", "ours", "peer"):
        table.add_column(column)
    for bar in bars:
        entry = book.entries.get(bar.name)
        if entry is None:
            table.add_row(bar.model, bar.what, "-", "", "not measured")
            continue
        need = "" if bar.need is None else f"{'at most' if bar.at_most else 'at least'} {bar.need:g}"
        colour = {"met": "green", "missed": "red"}.get(entry["verdict"], "default")
        rates = [""] * 2
        if bar.row and "ours" in entry:
            rates[0] = f"{entry['ours']['tokens_per_second']['median']:,.0f}"
        if bar.peer:
            theirs = entry["against"][bar.peer]
            rates[1] = f"{theirs['tokens_per_second']['median']:,.0f} {theirs['setting']}"
        value = spread_text(Spread(**entry["value"]))
        table.add_row(bar.model, bar.what, value, need, f"[{colour}]{entry['verdict']}[/]", *rates)
    console.print(table)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", default=[], help="bars whose name holds this text; repeatable")
    parser.add_argument("--list", action="store_true", help="name the bars and stop")
    parser.add_argument("--again", action="store_true", help="measure also what the JSON file already holds")
    parser.add_argument("--json", type=Path, help="where results are kept")
    parser.add_argument("--backend", default=default_name())
    parser.add_argument("--numerics", default=None)
    parser.add_argument("--threads", type=int, default=min(2, usable_threads()))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--models", type=Path, default=cache_dir() / "bench", help="folder of the random models")
    parser.add_argument("--peer-python", default=os.environ.get("SAMEBITS_PEER_PYTHON"))
    return parser.parse_args()


def main() -> None:
    asked, console = options(), Console()
    bars = [b for b in all_bars() if not asked.only or any(text in b.name for text in asked.only)]
    if asked.list:
        console.print("\n".join(escape(bar.name) for bar in bars), highlight=False)
        return
    if warning := busy_line():
        console.print(f"[yellow]warning[/] {warning}", highlight=False)
    book = Book(asked.json)
    for model in dict.fromkeys(bar.model for bar in bars):
        due = [b for b in bars if b.model == model and (asked.again or b.name not in book.entries)]
        if not due:
            continue
        try:
            settings = Settings(model_path(model, asked.models, console), asked.backend, asked.threads, asked.numerics)
            measure_others(due, settings, asked.repeats, book)
            problems = list(measure_rows(due, settings, asked, book))
        except SamebitsError as error:
            problems = [str(error)]
        for problem in problems:
            console.print(f"[red]{escape(model)}:[/] {escape(problem)}", highlight=False)
    print_book(console, bars, book)


if __name__ == "__main__":
    main()
