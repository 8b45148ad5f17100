"""Requests that arrive at given times: two scenes of our own, or a recorded file."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from samebits.core.errors import BadInput

NUM_DECODERS, DECODER_PROMPT, DECODER_TOKENS = 8, 32, 400
LONG_PROMPT, LONG_AT_SECONDS, LONG_TOKENS = 6000, 1.0, 32
NUM_SYSTEM_PROMPTS, SYSTEM_PROMPT_TOKENS = 4, 256

MAX_REQUESTS, MAX_TOKENS, MAX_SECONDS = 100_000, 1 << 20, 1e7
MAX_LINE_BYTES = 1024
FIELDS = {"at_seconds", "prompt_tokens", "new_tokens", "prefix_group", "prefix_tokens"}


@dataclass(frozen=True)
class Arrival:
    """A request: when it comes, how long its prompt is, how many tokens it draws.

    Those of one `prefix_group` start with the same `prefix_tokens` tokens, as far as both have so many.
    """

    at_seconds: float
    prompt_tokens: int
    new_tokens: int
    prefix_group: str | None = None
    prefix_tokens: int = 0


def long_prompt() -> tuple[Arrival, ...]:
    """Some answers are under way when one long prompt comes: how long do they freeze?"""
    decoders = [Arrival(0.0, DECODER_PROMPT, DECODER_TOKENS) for _ in range(NUM_DECODERS)]
    return (*decoders, Arrival(LONG_AT_SECONDS, LONG_PROMPT, LONG_TOKENS))


def together(
    count: int, lengths: tuple[int, ...], new_tokens: int, shared_prefix: int, seed: int
) -> tuple[Arrival, ...]:
    """Requests that come at once, prompts spread evenly from the shortest length to the longest.

    All start with the same `shared_prefix` tokens, before what is their own.
    """
    if not lengths:
        raise BadInput("bench", "prompts", "none", "the shortest and the longest length")
    own = np.random.Generator(np.random.Philox(seed)).integers(min(lengths), max(lengths) + 1, count).tolist()
    group = "all" if shared_prefix else None
    return tuple(Arrival(0.0, shared_prefix + n, new_tokens, group, shared_prefix) for n in own)


@dataclass(frozen=True)
class Mixture:
    """What `mixed` draws from.

    rate           requests per second, in a Poisson process
    prompt_lens    of the part of a prompt that is its own, each as likely
    new_tokens     the mean; lengths are spread evenly from one to twice as many
    prefix_share   of requests that start with one of a few system prompts
    """

    rate: float = 1.0
    seconds: float = 60.0
    prompt_lens: tuple[int, ...] = (32, 128, 512, 2048)
    new_tokens: int = 64
    prefix_share: float = 0.5
    seed: int = 0


def mixed(mixture: Mixture) -> tuple[Arrival, ...]:
    """Independent users; the same mixture and seed give the same requests."""
    if not mixture.prompt_lens or mixture.rate * mixture.seconds > MAX_REQUESTS / 2:
        given = f"{mixture.rate:g} a second for {mixture.seconds:g} s, prompts of {mixture.prompt_lens}"
        raise BadInput("bench", "mixture", given, f"a prompt length, and {MAX_REQUESTS // 2} requests at most")
    draw = np.random.Generator(np.random.Philox(mixture.seed))
    arrivals: list[Arrival] = []
    at = 0.0
    while (at := at + draw.exponential(1 / mixture.rate)) < mixture.seconds or not arrivals:
        own = int(draw.choice(mixture.prompt_lens))
        new_tokens = int(draw.integers(1, 2 * mixture.new_tokens))
        group = int(draw.integers(NUM_SYSTEM_PROMPTS)) if draw.random() < mixture.prefix_share else None
        shared = 0 if group is None else SYSTEM_PROMPT_TOKENS
        name = None if group is None else f"system prompt {group}"
        arrivals.append(Arrival(at, shared + own, new_tokens, name, shared))
    return tuple(arrivals)


def read_arrivals(path: Path) -> tuple[Arrival, ...]:
    """A file of one JSON object per line, sorted by time; BadInput names the first line that is wrong."""
    try:
        with path.open("rb") as file:
            arrivals = [_parsed(f"{path.name}, line {n}", line) for n, line in _lines(file, path.name)]
    except OSError as error:
        raise BadInput("bench", str(path), error.strerror, "a file that can be read") from error
    if not arrivals:
        raise BadInput("bench", path.name, "no requests", "one JSON object per line")
    return tuple(sorted(arrivals, key=lambda a: a.at_seconds))


def _lines(file: BinaryIO, name: str) -> Iterator[tuple[int, bytes]]:
    """Numbered lines that are not empty; no more is read of one than a line may have."""
    number = 0
    while line := file.readline(MAX_LINE_BYTES + 1):
        number += 1
        if number > MAX_REQUESTS or len(line) > MAX_LINE_BYTES:
            raise BadInput(
                "bench", name, f"too much at line {number}", f"{MAX_REQUESTS} lines of {MAX_LINE_BYTES} bytes at most"
            )
        if line.strip():
            yield number, line


def _parsed(where: str, line: bytes) -> Arrival:
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadInput("bench", where, f"invalid JSON ({type(error).__name__})", "a JSON object") from error
    if not isinstance(fields, dict) or not fields.keys() <= FIELDS:
        raise BadInput("bench", where, line[:80].decode(errors="replace").strip(), f"an object of {sorted(FIELDS)}")
    at: Any = fields.get("at_seconds")
    if type(at) not in (int, float) or not (math.isfinite(at) and 0 <= at <= MAX_SECONDS):
        raise BadInput("bench", where, f"at_seconds {at!r}", f"a number from 0 to {MAX_SECONDS:.0f}")
    prompt_tokens = _count(where, fields, "prompt_tokens", 1, MAX_TOKENS)
    new_tokens = _count(where, fields, "new_tokens", 1, MAX_TOKENS)
    group = fields.get("prefix_group")
    if group is None:
        if "prefix_tokens" in fields:
            raise BadInput("bench", where, "prefix_tokens alone", "a prefix_group as well")
        return Arrival(float(at), prompt_tokens, new_tokens)
    if type(group) not in (int, str):
        raise BadInput("bench", where, f"prefix_group {group!r}"[:80], "a name or a number")
    prefix_tokens = _count(where, fields, "prefix_tokens", 0, prompt_tokens)
    return Arrival(float(at), prompt_tokens, new_tokens, str(group), prefix_tokens)


def _count(where: str, fields: dict[str, Any], name: str, least: int, most: int) -> int:
    value = fields.get(name)
    if type(value) is not int or not least <= value <= most:  # a bool is no count
        raise BadInput("bench", where, f"{name} {value!r}"[:80], f"a whole number from {least} to {most}")
    return value


def prompts_of(arrivals: Sequence[Arrival]) -> Iterator[np.ndarray]:
    """Made-up int32 tokens, prompt by prompt: equal where a group shares them, else different."""
    groups = {group: i for i, group in enumerate(dict.fromkeys(a.prefix_group for a in arrivals))}
    for i, a in enumerate(arrivals):
        shared = _tokens(1, groups[a.prefix_group], a.prefix_tokens)
        yield np.concatenate([shared, _tokens(0, i, a.prompt_tokens - a.prefix_tokens)])


def _tokens(kind: int, index: int, count: int) -> np.ndarray:
    """The first `count` of an endless row of tokens."""
    return np.random.Generator(np.random.Philox([kind, index])).integers(0, 1 << 16, count, dtype=np.int32)
