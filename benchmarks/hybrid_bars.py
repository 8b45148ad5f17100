"""The bars of hybrids on the native CPU backend: `python benchmarks/hybrid_bars.py [--peer-python PYTHON]`.

A random model of the default one's width, three of four layers gated delta nets, against the same size with attention
in every layer, and against llama.cpp on the same file. Sides take turns, round by round.
"""

from __future__ import annotations

import argparse
from contextlib import closing, suppress
from pathlib import Path

from random_model import write_model
from rich.console import Console
from rich.table import Table

from samebits.bench.ceiling import busy_line, usable_threads
from samebits.bench.ours import Ours, Settings
from samebits.bench.peer import open_peer
from samebits.bench.report import spread_text
from samebits.bench.results import Row, Side
from samebits.bench.rounds import measure_row
from samebits.bench.shapes import SHAPES
from samebits.core.errors import Unavailable
from samebits.loaders.cache import cache_dir

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer-python", help="an interpreter that has llama_cpp")
    parser.add_argument("--threads", type=int, default=usable_threads())
    parser.add_argument("--repeats", type=int, default=5)
    asked = parser.parse_args()
    console, folder, rows = Console(), cache_dir() / "bench", (DEEP, PROMPT)
    sides = {name: Settings(str(model_path(name, folder)), "cpu", asked.threads) for name in (MODEL, FULL)}
    ours = Ours(sides[MODEL], checkpoint := sides[MODEL].open(), rows)
    peers: list[Side] = [Attention(sides[FULL], sides[FULL].open(), rows)]
    table = Table(title=f"{MODEL}, {FORMAT}, {asked.threads} threads: ratios above 1: the hybrid on samebits is faster")
    for column in ("row", "against", "ratio", "bar", "ours, tok/s", "theirs, tok/s"):
        table.add_column(column)
    with suppress(Unavailable):
        console.print(busy_line(), highlight=False)
    try:
        peers.append(open_peer("llama.cpp", asked.peer_python, checkpoint, asked.threads))
    except Unavailable as error:
        console.print(str(error), highlight=False)
    for row in rows:
        result = measure_row(row, ours, peers, asked.repeats)
        for theirs in result.peers:
            if not theirs.seconds:
                console.print(f"{row.label}: {theirs.reason}", highlight=False)
                continue
            need = BARS.get((theirs.side, row))
            rates = [f"{timed.rate(row).median:.1f}" for timed in (result.ours, theirs)]
            table.add_row(row.label, theirs.side, spread_text(result.ratio(theirs)), f"{need or ''}", *rates)
    console.print(table)
    for peer in peers[1:]:
        with closing(peer):  # type: ignore[type-var]
            pass


if __name__ == "__main__":
    main()
