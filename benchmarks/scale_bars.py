"""The bars of replicas: `python benchmarks/scale_bars.py [overhead prefixes kills throughput] [--json F]`.

overhead     a server with two replicas against a plain one, on the null backend, which computes nothing
prefixes     64 users in 8 groups with a prefix of 1,000 tokens each, replicas whose pages hold four of those and
             a request: prompt tokens found in pages, routed by prefix against power of two, random without load
kills        50 streams for a minute while every 5 seconds a replica is killed: answers that are lost or different
throughput   two replicas of one thread and 16 sequences each against one, with more streams than both can run
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import statistics
import time
from contextlib import suppress
from typing import Any

from rich.console import Console
from rich.table import Table
from scale_client import Answer, Served, ask, words

MODEL = "smollm2"
ROUNDS, REQUESTS = 3, 60
STREAMS, TOKENS = 32, 64
BUSY_STREAMS, BUSY_SEQUENCES, WARM_SECONDS, BUSY_SECONDS = 48, 16, 5.0, 20.0
GROUPS, USERS, PREFIX_WORDS, ASKED_TIMES = 8, 64, 1000, 2
KILL_STREAMS, KILL_SECONDS, KILL_EVERY = 50, 60.0, 5.0
Row = tuple[str, str, str, bool]  # what was measured, the figure, the bar, whether it holds


def body(seed: int, max_tokens: int, prompt: str = "Why is the sky blue?", **more: Any) -> dict[str, Any]:
    wishes = {"max_tokens": max_tokens, "temperature": 0.8, "seed": seed, "ignore_eos": True}
    return {"prompt": prompt, **wishes, "stream": True, **more}


async def seconds_of_requests(server: Served) -> float:
    started = time.perf_counter()
    for seed in range(REQUESTS):
        await ask(server.port, body(seed, 1, stream=False))
    return (time.perf_counter() - started) / REQUESTS


async def seconds_of_streams(server: Served, count: int, tokens: int) -> float:
    started = time.perf_counter()
    await asyncio.gather(*(ask(server.port, body(seed, tokens), reads=False) for seed in range(count)))
    return time.perf_counter() - started


def overhead() -> list[Row]:
    flags = ("--backend", "null", "--context-len", "512")
    singles, alone, many = [], [], []
    with Served(*flags) as plain, Served(*flags, "--replicas", "2") as relayed:
        for number in range(ROUNDS + 1):  # the first warms up
            pairs = [asyncio.run(seconds_of_requests(server)) for server in (plain, relayed)]
            one = [asyncio.run(seconds_of_streams(server, 1, 256)) / 256 for server in (plain, relayed)]
            all_ = [asyncio.run(seconds_of_streams(server, STREAMS, TOKENS)) for server in (plain, relayed)]
            if number:
                singles.append(pairs[1] - pairs[0])
                alone.append(one[1] - one[0])
                many.append((all_[1] - all_[0]) / (STREAMS * TOKENS))
    request, token, shared = (1000 * statistics.median(found) for found in (singles, alone, many))
    return [
        ("overhead per request", f"{request:.2f} ms", "6 ms", request <= 6),
        ("overhead per streamed token, one stream", f"{token:.3f} ms", "0.5 ms", token <= 0.5),
        (f"overhead per streamed token, {STREAMS} streams", f"{shared:.3f} ms", "0.5 ms", shared <= 0.5),
    ]


async def users(server: Served) -> None:
    """All users ask, in an order at random, one after another."""
    asked = [user for user in range(USERS) for _ in range(ASKED_TIMES)]
    random.Random(0).shuffle(asked)
    for user in asked:
        prompt = words(user % GROUPS, PREFIX_WORDS) + words(1000 + user, 20)
        await ask(server.port, body(user, 2, prompt, stream=False))


def prefixes() -> list[Row]:
    pages = 9 * (PREFIX_WORDS + 24) // (2 * 16)
    flags = ("--backend", "null", "--replicas", "2", "--num-pages", str(pages))
    hits = []
    for routing in ("prefix", "power-of-two"):
        with Served(*flags, "--routing", routing) as server:
            asyncio.run(users(server))
            hits.append(server.metric("samebits_cached_prompt_tokens_total"))
    ratio = hits[0] / max(hits[1], 1)
    told = f"{ratio:.2f} x ({hits[0] / 1000:.0f}k against {hits[1] / 1000:.0f}k tokens)"
    return [("prefix hits against random routing", told, "1.7 x", ratio >= 1.7)]


def streamed(number: int) -> dict[str, Any]:
    return body(number, 120, words(number, 30), logits_sha256=True)


async def kill_now_and_then(server: Served, until: float) -> int:
    num_killed = 0
    while time.monotonic() < until:
        await asyncio.sleep(KILL_EVERY)
        if found := server.replicas():
            with suppress(ProcessLookupError):
                os.kill(random.choice(found), signal.SIGKILL)
                num_killed += 1
    return num_killed


async def under_kills(server: Served, want: list[Answer]) -> tuple[int, int, int, int, list[float]]:
    """(kills, answers, lost ones, different ones, the longest pause of each answer in seconds)."""
    until, told = time.monotonic() + KILL_SECONDS, [0, 0, 0]
    pauses: list[float] = []

    async def keep_asking(number: int) -> None:
        while time.monotonic() < until:
            try:
                answer = await ask(server.port, streamed(number))
            except (OSError, SystemExit) as error:
                Console(stderr=True).print(f"lost: {error}")
                told[1] += 1
                continue
            told[0] += 1
            told[2] += (answer.text, answer.sha256) != (want[number].text, want[number].sha256)
            pauses.append(max(answer.gaps[1:]))  # the first part may have to wait for its turn

    killing = asyncio.create_task(kill_now_and_then(server, until))
    await asyncio.gather(*map(keep_asking, range(KILL_STREAMS)))
    return await killing, *told, pauses


def kills() -> list[Row]:
    flags = ("--model", MODEL, "--threads", "1", "--max-sequences", "64", "--context-len", "512")

    async def undisturbed(server: Served) -> list[Answer]:
        return list(await asyncio.gather(*(ask(server.port, streamed(n)) for n in range(KILL_STREAMS))))

    with Served(*flags) as plain:
        want = asyncio.run(undisturbed(plain))
    with Served(*flags, "--replicas", "2") as server:
        num_killed, num_answers, num_lost, num_different, pauses = asyncio.run(under_kills(server, want))
    p50, p99 = (statistics.quantiles(pauses, n=100)[i] for i in (49, 98))
    told = f"{num_lost} lost, {num_different} different of {num_answers}, {num_killed} kills"
    return [
        (f"a kill every {KILL_EVERY:g} s under {KILL_STREAMS} streams", told, "0, 0", num_lost == num_different == 0),
        ("the longest pause within an answer, p50, p99", f"{p50:.2f} s, {p99:.2f} s", "reported", True),
    ]


async def steady(server: Served) -> tuple[float, dict[str, float]]:
    """(tokens per second, cores that each kind of process takes) while BUSY_STREAMS streams are always under way."""
    is_over, num_tokens = False, 0

    def count(parts: int) -> None:
        nonlocal num_tokens
        num_tokens += parts

    async def keep_asking(number: int) -> None:
        while not is_over:
            number += BUSY_STREAMS
            await ask(server.port, body(number, TOKENS, words(number, 30)), reads=False, on_parts=count)

    def used() -> dict[str, float]:
        return {**server.cpu_seconds(), "client": time.process_time()}

    asking = asyncio.gather(*map(keep_asking, range(BUSY_STREAMS)))
    await asyncio.sleep(WARM_SECONDS)
    started, before, num_tokens = time.perf_counter(), used(), 0
    await asyncio.sleep(BUSY_SECONDS)
    seconds, after, told = time.perf_counter() - started, used(), num_tokens
    is_over = True
    await asking
    return told / seconds, {name: (after[name] - before[name]) / seconds for name in after}


def throughput() -> list[Row]:
    """One cluster at a time, in turn, since an idle one takes part of a core too."""
    flags = ("--model", MODEL, "--threads", "1", "--context-len", "512", "--max-sequences", str(BUSY_SEQUENCES))
    rates: dict[int, list[float]] = {1: [], 2: []}
    cores: dict[int, list[dict[str, float]]] = {1: [], 2: []}
    for _ in range(ROUNDS):
        for count, found in rates.items():
            with Served(*flags, "--replicas", str(count)) as server:
                rate, shares = asyncio.run(steady(server))
            found.append(rate)
            cores[count].append(shares)
    ratio = statistics.median(two / one for one, two in zip(rates[1], rates[2], strict=True))
    told = f"{ratio:.2f} x ({statistics.median(rates[2]):.0f} against {statistics.median(rates[1]):.0f} tokens/s)"
    rows: list[Row] = [("two replicas of a thread each against one", told, "1.7 x", ratio >= 1.7)]
    for count, used in cores.items():
        shares = {name: statistics.median(share[name] for share in used) for name in used[0]}
        told = ", ".join(f"{name} {share:.2f}" for name, share in shares.items())
        rows.append((f"cores that {count} of them take", told, "reported", True))
    return rows


BARS = {"overhead": overhead, "prefixes": prefixes, "kills": kills, "throughput": throughput}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("which", nargs="*", help=f"of {', '.join(BARS)}; all if absent")
    parser.add_argument("--json", help="write the figures here")
    given = parser.parse_args()
    if unknown := set(given.which) - BARS.keys():
        parser.error(f"no such bar: {', '.join(sorted(unknown))}")
    rows = [row for name in (given.which or BARS) for row in BARS[name]()]
    table = Table("work", "measured", "bar", "holds")
    for work, figure, bar, holds in rows:
        table.add_row(work, figure, bar, "yes" if holds else "no")
    Console().print(table)
    if given.json:
        with open(given.json, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
