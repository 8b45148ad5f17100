"""What a listener of the pages is told: each prefix once when it can be found, once when it no longer can."""

from __future__ import annotations

import numpy as np

from samebits.cache import PageCache, Prefix, PrefixChain
from samebits.scheduler import Policy, PromptRequest, Scheduler

PAGE = 4


class Mirror:
    """Knows what can be found from what it was told alone."""

    def __init__(self) -> None:
        self.parents: dict[bytes, bytes | None] = {}
        self.tokens: dict[bytes, bytes] = {}
        self.num_removed = 0

    def stored(self, parent: bytes | None, digest: bytes, tokens: bytes) -> None:
        assert digest not in self.tokens
        self.parents[digest], self.tokens[digest] = parent, tokens

    def removed(self, digest: bytes) -> None:
        del self.tokens[digest]  # a KeyError where it was never told of
        self.num_removed += 1


def prefixes_of(tokens: np.ndarray) -> list[Prefix]:
    return PrefixChain(PAGE).upto(tokens, len(tokens) // PAGE)


def play(scheduler: Scheduler, prompt: np.ndarray, num_new: int) -> None:
    (sample,) = scheduler.add(PromptRequest(prompt))
    for _ in range(num_new):
        while (plan := scheduler.plan()) is not None and not plan.sampled:
            scheduler.commit(plan, np.zeros(0, np.int32))
        assert plan is not None
        scheduler.commit(plan, np.full(1, 7, np.int32))
    scheduler.finish(sample)


def listened(num_pages: int = 40) -> tuple[Scheduler, Mirror]:
    pages, mirror = PageCache(num_pages, PAGE, 4, 64), Mirror()
    pages.pool.listener = mirror
    return Scheduler(pages, Policy()), mirror


def test_a_prompt_and_its_answer_are_told_page_by_page_each_behind_its_parent() -> None:
    scheduler, mirror = listened()
    prompt = np.arange(10, dtype=np.int32)
    play(scheduler, prompt, 4)
    computed = np.append(prompt, np.full(3, 7, np.int32))  # of the last token there is no row
    expected = prefixes_of(computed)
    assert mirror.tokens == {p.digest: p.tokens for p in expected}
    assert mirror.parents == dict(
        zip((p.digest for p in expected), (None, *(p.digest for p in expected)), strict=False)
    )


def test_a_prefix_that_is_known_is_not_told_again_and_a_longer_one_names_it() -> None:
    scheduler, mirror = listened()
    start = np.arange(8, dtype=np.int32)
    play(scheduler, np.append(start, np.full(2, 50, np.int32)), 1)
    first = prefixes_of(start)
    assert set(mirror.tokens) == {p.digest for p in first}
    play(scheduler, np.append(start, np.full(4, 60, np.int32)), 1)
    (new,) = set(mirror.tokens) - {p.digest for p in first}
    assert mirror.parents[new] == first[-1].digest


def test_a_mirror_agrees_with_the_index_under_eviction() -> None:
    scheduler, mirror = listened(num_pages=12)
    pool, draw = scheduler.pages.pool, np.random.default_rng(3)
    for _ in range(60):
        play(scheduler, draw.integers(0, 3, draw.integers(1, 30), dtype=np.int32), int(draw.integers(1, 8)))
        known = {p.digest: p.tokens for p in pool._prefix_of.values()}
        assert mirror.tokens == known
    assert mirror.num_removed == pool.num_evicted > 50


def test_a_pool_that_is_cleared_tells_of_all_it_forgets() -> None:
    cache, mirror = PageCache(20, PAGE, 2, 64, further=[(6, 20)], num_snapshots=2), Mirror()
    cache.pool.listener = mirror
    tokens = np.arange(9, dtype=np.int32)
    prefixes = prefixes_of(tokens)
    cache.open(0, cache.match(prefixes, 9), prefixes, 9)
    cache.advance(np.array([0]), np.array([0]), np.array([9]))
    cache.note(0, prefixes, 9)
    assert len(mirror.tokens) == 2
    cache.clear()
    assert (mirror.tokens, cache.num_used) == ({}, 0)
    assert cache.match(prefixes, 9).pages == ()
    cache.check_integrity()
