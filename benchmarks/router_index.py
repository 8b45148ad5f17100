"""What one router can keep up with: lookups and changes per second of the index of prefixes, and its memory.

python benchmarks/router_index.py --replicas 1000 --pages 1168

The index is the one of `samebits bench schedule --replicas`, a Python dict on one core.
Prompts and pages are as there: groups that share 64 pages, then pages of their own.
"""

from __future__ import annotations

import argparse
import time
import tracemalloc

import numpy as np

from samebits.bench.fleet.prefix_index import PrefixIndex
from samebits.cache import Prefix, PrefixChain

PAGE_SIZE, SHARED_PAGES, OWN_PAGES = 16, 64, 14
GROUPS_PER_REPLICA = 4


def prompts_of(num_replicas: int, count: int) -> list[list[Prefix]]:
    """Chains of prompts whose groups ask as often as they do in the simulation."""
    draw = np.random.default_rng(0)
    shares = np.cumsum(1 / np.arange(1, GROUPS_PER_REPLICA * num_replicas + 1))
    groups = np.searchsorted(shares, draw.random(count) * shares[-1])
    chains: dict[int, PrefixChain] = {}
    found = []
    for group in groups.tolist():
        tokens = np.full((SHARED_PAGES + OWN_PAGES) * PAGE_SIZE, group, np.int32)
        shared = chains.setdefault(group, PrefixChain(PAGE_SIZE))
        shared.upto(tokens, SHARED_PAGES)
        own = shared.copy()
        tokens[SHARED_PAGES * PAGE_SIZE :] = draw.integers(1 << 20, 1 << 30, OWN_PAGES * PAGE_SIZE)
        found.append(own.upto(tokens, SHARED_PAGES + OWN_PAGES))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicas", type=int, default=1000)
    parser.add_argument("--pages", type=int, default=1168, help="pages that a replica holds")
    options = parser.parse_args()
    num_replicas, draw = options.replicas, np.random.default_rng(1)
    prompts = prompts_of(num_replicas, num_replicas * options.pages // 40)
    index = PrefixIndex()
    tracemalloc.start()
    for prompt in prompts:  # where a group is first, and then on two replicas more at most
        first = prompt[0].digest[0] * 7919 + prompt[0].digest[1]
        bit = 1 << ((first + int(draw.integers(3))) % num_replicas)
        for prefix in prompt:
            if not index._holders.get(prefix.digest, 0) & bit:
                index.add(prefix.digest, bit)
        if index.num_entries >= num_replicas * options.pages:
            break
    num_bytes = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    asked = [prompts[i] for i in draw.integers(0, len(prompts), 20_000)]
    start = time.process_time()
    for prompt in asked:
        index.longest(prompt)
    lookup_seconds = time.process_time() - start
    known = [prefix.digest for prompt in prompts[:2000] for prefix in prompt]
    pairs = zip(known, (1 << n for n in draw.integers(0, num_replicas, len(known)).tolist()), strict=True)
    fresh = [(digest, bit) for digest, bit in dict.fromkeys(pairs) if not index._holders.get(digest, 0) & bit]
    start = time.process_time()
    for digest, bit in fresh:
        index.add(digest, bit)
    for digest, bit in fresh:
        index.drop(digest, bit)
    change_seconds = time.process_time() - start
    probes = index.num_probes
    print(f"{num_replicas:,} replicas, {index.num_entries:,} entries: {num_bytes / index.num_entries:.0f} bytes each")
    print(f"{len(asked) / lookup_seconds:,.0f} prompts per second, {probes / lookup_seconds:,.0f} pages looked up")
    print(f"{2 * len(fresh) / change_seconds:,.0f} changes per second")
    print(f"{1e6 * chain_seconds(asked):.0f} us to name the pages of a prompt")


def chain_seconds(prompts: list[list[Prefix]]) -> float:
    """Per prompt: digests of its pages, which a router computes before it can look them up."""
    tokens = [np.frombuffer(b"".join(p.tokens for p in prompt), np.int32) for prompt in prompts[:1000]]
    start = time.process_time()
    for each in tokens:
        PrefixChain(PAGE_SIZE).upto(each, len(each) // PAGE_SIZE)
    return (time.process_time() - start) / len(tokens)


if __name__ == "__main__":
    main()
