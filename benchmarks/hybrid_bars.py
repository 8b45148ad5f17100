"""The bars of hybrids on the native CPU backend: `python benchmarks/hybrid_bars.py [--peer-python PYTHON]`.

A random model of the default one's width, three of four layers gated delta nets, against the same size with attention
in every layer, and against llama.cpp on the same file. Sides take turns, round by round.
"""

from __future__ import annotations

import argparse
from contextlib import ExitStack, closing, suppress
from pathlib import Path

from random_model import write_model
from rich.console import Console
from rich.table import Table

from samebits.bench.ceiling import busy_line, usable_threads
from samebits.bench.ours import Ours, Settings
from samebits.bench.peer import Peer, open_peer
from samebits.bench.report import spread_text
from samebits.bench.results import Row, Side
from samebits.bench.rounds import measure_row
from samebits.bench.shapes import SHAPES
from samebits.core.errors import Unavailable
from samebits.loaders.cache import cache_dir
from samebits.models.checkpoint import FileCheckpoint

MODEL, FULL, FORMAT = "hybrid-135m", "hybrid-135m-attention", "q4_0"
DEEP, PROMPT = Row("decode", 32, depth=2048), Row("prefill", 512)
BARS = {(FULL, DEEP): 1.3, ("llama.cpp", DEEP): 1.3, ("llama.cpp", PROMPT): 1.2}


class Attention(Ours):
    """The same size with attention in every layer."""

    name = FULL


def model_path(shape: str, folder: Path) -> Path:
    path = folder / f"{shape}-{FORMAT}.gguf"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        write_model(SHAPES[shape], FORMAT, path)
    return path


def show(
    title: str, rows: tuple[Row, ...], ours: Side, peers: list[Side], bars: dict[tuple[str, Row], float], repeats: int
) -> None:
    """Measures the rows, sides in turn, and prints a table of ratios beside their bars."""
    console, table = Console(), Table(title=title)
    for column in ("row", "against", "ratio", "bar", "ours, tok/s", "theirs, tok/s"):
        table.add_column(column)
    with suppress(Unavailable):
        console.print(busy_line(), highlight=False)
    for row in rows:
        result = measure_row(row, ours, peers, repeats)
        for theirs in result.peers:
            if not theirs.seconds:
                console.print(f"{row.label}: {theirs.reason}", highlight=False)
                continue
            need = bars.get((theirs.side, row))
            rates = [f"{timed.rate(row).median:.1f}" for timed in (result.ours, theirs)]
            table.add_row(row.label, theirs.side, spread_text(result.ratio(theirs)), f"{need or ''}", *rates)
    console.print(table)


def llama_cpp(peer_python: str | None, checkpoint: FileCheckpoint, settings: Settings) -> list[Peer]:
    """llama.cpp on the same file, or a line that says why not."""
    try:
        return [open_peer("llama.cpp", peer_python, checkpoint, settings)]
    except Unavailable as error:
        Console().print(str(error), highlight=False)
        return []


def arguments(doc: str | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer-python", help="an interpreter that has llama_cpp")
    parser.add_argument("--threads", type=int, default=usable_threads())
    parser.add_argument("--repeats", type=int, default=5)
    return parser.parse_args()


def main() -> None:
    asked, folder, rows = arguments(__doc__), cache_dir() / "bench", (DEEP, PROMPT)
    sides = {name: Settings(str(model_path(name, folder)), "cpu", asked.threads) for name in (MODEL, FULL)}
    ours = Ours(sides[MODEL], checkpoint := sides[MODEL].open(), rows)
    others = llama_cpp(asked.peer_python, checkpoint, sides[MODEL])
    title = f"{MODEL}, {FORMAT}, {asked.threads} threads: ratios above 1: the hybrid on samebits is faster"
    with ExitStack() as open_peers:
        for peer in others:
            open_peers.enter_context(closing(peer))
        show(title, rows, ours, [Attention(sides[FULL], sides[FULL].open(), rows), *others], BARS, asked.repeats)


if __name__ == "__main__":
    main()
