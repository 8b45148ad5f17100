"""Which rows a run measures, and the limits a model needs for all of them."""

from __future__ import annotations

from collections.abc import Sequence

from samebits.bench.results import Row
from samebits.core.errors import BadInput
from samebits.models.parts import Limits

PAGE_SIZE = 16
CHUNK_TOKENS = 512  # of a prompt in one step: what `LLM` takes on the host
SHORT_PROMPT = 16  # tokens that every sequence of a batch holds before it decodes
LARGEST = 1 << 20


def numbers(option: str, text: str, least: int) -> tuple[int, ...]:
    """ "8,32" as numbers, an empty text as none; BadInput for anything else."""
    parts = [part.strip() for part in text.split(",")] if text.strip() else []
    if not all(p.isascii() and p.isdecimal() and least <= int(p[:9]) <= LARGEST for p in parts):
        raise BadInput("bench", option, repr(text[:80]), f"numbers from {least} to {LARGEST}, separated by commas")
    return tuple(map(int, parts))


def rows_for(
    prompts: tuple[int, ...], depths: tuple[int, ...], batches: tuple[int, ...], decode_tokens: int
) -> tuple[Row, ...]:
    """Prompts, then single sequences by depth, then batches."""
    return (
        *(Row("prefill", n) for n in prompts),
        *(Row("decode", decode_tokens, depth=d) for d in depths),
        *(Row("decode", decode_tokens, num_sequences=n, depth=SHORT_PROMPT) for n in batches),
    )


def fitting(rows: tuple[Row, ...], context_len: int) -> tuple[tuple[Row, ...], tuple[str, ...]]:
    """The rows that a model's context has room for, and a line for each that is left out."""
    kept = tuple(row for row in rows if row.tokens_each <= context_len)
    left_out = tuple(
        f"{row.label}: {row.tokens_each} tokens, and the model's context is {context_len}"
        for row in rows
        if row.tokens_each > context_len
    )
    if not kept:
        raise BadInput("bench", "rows", "; ".join(left_out) or "none", "a prompt, a depth or a batch that fits")
    return kept, left_out


def limits_for(rows: Sequence[Row], k_format: str, v_format: str, chunk_tokens: int = CHUNK_TOKENS) -> Limits:
    """Steps and pages for the largest of the rows; prompts go in steps of chunk_tokens."""
    longest = max(row.tokens_each for row in rows)
    sequences = max(row.num_sequences for row in rows)
    return Limits(
        max_tokens=max(min(chunk_tokens, longest), sequences),
        max_sequences=sequences,
        num_pages=max(row.num_sequences * -(-row.tokens_each // PAGE_SIZE) for row in rows),
        page_size=PAGE_SIZE,
        max_positions=longest,
        k_format=k_format,
        v_format=v_format,
    )
