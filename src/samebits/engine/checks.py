"""What callers of an engine give, checked before anything is queued."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from samebits.core.arguments import whole_numbers
from samebits.core.errors import BadInput


def checked_ids(where: str, name: str, tokens: Iterable[int], longest: int, vocab_size: int) -> np.ndarray:
    """int32 ids of at least one token, at most `longest`; BadInput for others."""
    ids = list(tokens)
    if not ids:
        raise BadInput(where, name, "no tokens" if name == "prompt" else "none", "at least one")
    if len(ids) > longest:
        raise BadInput(where, name, f"{len(ids)} tokens", f"fewer than {longest + 1}")
    wrong = next((i for i in ids if not 0 <= i < vocab_size), None)
    if wrong is not None:
        raise BadInput(where, "token id", wrong, f"0 .. {vocab_size - 1}")
    return np.array(ids, np.int32)


def expected_ids(drafted: Iterable[int] | None, most: int, vocab_size: int) -> list[int] | None:
    """The tokens of an answer of at most so many, where given; BadInput for others."""
    if drafted is None:
        return None
    ids = list(drafted)
    if len(ids) > most:
        raise BadInput("generate", "drafted", f"{len(ids)} tokens", f"at most {most}, what the answer may have")
    return checked_ids("generate", "drafted", ids, most, vocab_size).tolist() if ids else []


def checked_samples(given: Sequence[int] | None, num_samples: int, is_one: bool) -> list[int] | None:
    """Which of so many samples are to be made; None for all. BadInput for others, or for several where one is meant."""
    if given is None and not (is_one and num_samples > 1):
        return None
    indices = whole_numbers("generate", "sample_indices", () if given is None else given, 0, num_samples - 1)
    if not indices or len(set(indices)) < len(indices) or (is_one and len(indices) > 1):
        needed = "one: the sample whose tokens are drafted" if is_one else "one or more, none of them twice"
        raise BadInput("generate", "sample_indices", "none" if given is None else list(indices), needed)
    return list(indices)
