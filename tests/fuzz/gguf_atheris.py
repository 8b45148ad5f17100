"""A longer fuzz of the GGUF reader, guided by coverage. Run by hand:

    pip install atheris
    python tests/fuzz/gguf_atheris.py -max_total_time=600 [CORPUS_FOLDER]

It starts from the tests' own small files. Anything but a SamebitsError that escapes is a finding.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parents[1] / "loaders"))

with atheris.instrument_imports(include=["samebits.loaders"]):
    from gguf_writer import byte_level_vocab, scored_vocab, tiny_model

    from samebits.core.errors import SamebitsError
    from samebits.loaders.checkpoint import describe
    from samebits.loaders.gguf import parse_gguf

SEEDS = [
    tiny_model(architecture, vocab()).build()
    for architecture in ("llama", "qwen2", "qwen3", "gemma2")
    for vocab in (byte_level_vocab, scored_vocab)
]
PATH = Path("fuzz.gguf")


def mutate(data: bytes, max_size: int, seed: int) -> bytes:
    """Most of the time on from a valid file: random bytes alone rarely get past the counts."""
    base = SEEDS[seed % len(SEEDS)] if len(data) < 64 or seed % 7 == 0 else data
    return atheris.Mutate(base, max_size)


def one_input(data: bytes) -> None:
    with contextlib.suppress(SamebitsError):
        checkpoint = describe(parse_gguf(data, PATH))
        checkpoint.check()
        for name in checkpoint.names():
            checkpoint.tensor(name)
        tokenizer = checkpoint.tokenizer()
        tokenizer.decode(tokenizer.encode("hi <|im_start|> h\u00e9llo aaaa\n"))


if __name__ == "__main__":
    longest = max(map(len, SEEDS)) * 2
    atheris.Setup([*sys.argv, f"-max_len={longest}"], one_input, custom_mutator=mutate)
    atheris.Fuzz()
