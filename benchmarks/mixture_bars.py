"""The bars of mixtures on the native CPU backend: `python benchmarks/mixture_bars.py [--peer-python PYTHON]`.

A random model of the default one's shape with 8 experts of its FFN's size in every layer, of which a token takes 2,
against llama.cpp on the same file. Sides take turns, round by round.
"""

from __future__ import annotations

from contextlib import ExitStack, closing

from hybrid_bars import FORMAT, arguments, llama_cpp, model_path, show

from samebits.bench.ours import Ours, Settings
from samebits.bench.results import Row
from samebits.loaders.cache import cache_dir

MODEL = "moe-8x-576"
DECODE, PROMPT = Row("decode", 32), Row("prefill", 512)
BARS = {("llama.cpp", DECODE): 1.2, ("llama.cpp", PROMPT): 1.5}


def main() -> None:
    asked, rows = arguments(__doc__), (DECODE, PROMPT)
    side = Settings(str(model_path(MODEL, cache_dir() / "bench")), "cpu", asked.threads)
    ours = Ours(side, checkpoint := side.open(), rows)
    with ExitStack() as open_peers:
        peers = [open_peers.enter_context(closing(p)) for p in llama_cpp(asked.peer_python, checkpoint, side)]
        show(f"{MODEL}, {FORMAT}, {asked.threads} threads", rows, ours, [*peers], BARS, asked.repeats)


if __name__ == "__main__":
    main()
