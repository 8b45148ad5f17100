"""Page tables: hits and misses, forks and their copies, windows, and the order in which pages come back."""

from __future__ import annotations

import numpy as np
import pytest

from samebits.cache import Match, PageCache, PrefixChain
from samebits.cache.pages import NULL_PAGE
from samebits.core.errors import BadInput

PAGE = 4


def ids(*tokens: int) -> np.ndarray:
    return np.array(tokens, np.int32)


def match_of(cache: PageCache, tokens: np.ndarray, salt: bytes = b"") -> Match:
    return cache.match(PrefixChain(PAGE, salt).upto(tokens, len(tokens) // PAGE), len(tokens))


def opened(cache: PageCache, slot: int, tokens: np.ndarray, salt: bytes = b"") -> int:
    """Opens a sequence and takes all its tokens as computed; returns how many were there."""
    prefixes = PrefixChain(PAGE, salt).upto(tokens, len(tokens) // PAGE)
    num_cached = cache.open(slot, cache.match(prefixes, len(tokens)), prefixes, len(tokens))
    cache.note(slot, prefixes, len(tokens))
    return num_cached


def table(cache: PageCache, slot: int) -> list[int]:
    return cache.tables[slot, : cache.num_held[slot]].tolist()


def test_a_hit_stops_at_the_first_miss() -> None:
    cache = PageCache(20, PAGE, 3, 64)
    opened(cache, 0, np.arange(12, dtype=np.int32))
    assert opened(cache, 1, ids(0, 1, 2, 3, 9, 9, 9, 9, 8, 9, 10, 11, 0)) == PAGE
    assert table(cache, 1)[0] == table(cache, 0)[0]
    assert not set(table(cache, 1)[1:]) & set(table(cache, 0))
    cache.check_integrity()


def test_the_last_token_is_always_computed() -> None:
    cache = PageCache(20, PAGE, 2, 64)
    tokens = np.arange(8, dtype=np.int32)
    opened(cache, 0, tokens)
    assert len(match_of(cache, tokens).pages) == 1
    assert len(match_of(cache, np.append(tokens, ids(5))).pages) == 2


def test_other_salts_never_meet() -> None:
    cache = PageCache(20, PAGE, 2, 64)
    tokens = np.arange(9, dtype=np.int32)
    prefixes = PrefixChain(PAGE, b"a").upto(tokens, 2)
    cache.open(0, cache.match(prefixes, 9), prefixes, 9)
    assert match_of(cache, tokens, b"a").coming_slot == 0
    assert match_of(cache, tokens, b"b").coming_slot is None
    cache.note(0, prefixes, 9)
    assert len(match_of(cache, tokens, b"a").pages) == 2
    assert match_of(cache, tokens, b"b") == Match((), 3, None)


def test_pages_needed_count_idle_ones_of_the_match() -> None:
    cache = PageCache(20, PAGE, 2, 64)
    tokens = np.arange(9, dtype=np.int32)
    opened(cache, 0, tokens)
    assert match_of(cache, tokens).num_needed == 1
    cache.close(0)
    assert match_of(cache, tokens).num_needed == 3


def test_promises_end_with_their_sequence() -> None:
    cache = PageCache(20, PAGE, 2, 64)
    tokens = np.arange(9, dtype=np.int32)
    prefixes = PrefixChain(PAGE).upto(tokens, 2)
    cache.open(0, cache.match(prefixes, 9), prefixes, 9)
    cache.note(0, prefixes, 5)
    assert match_of(cache, tokens).coming_slot == 0
    cache.close(0)
    assert match_of(cache, tokens) == Match((1,), 3, None, 1)
    cache.check_integrity()


def test_a_closed_sequence_loses_its_last_page_first() -> None:
    cache = PageCache(4, PAGE, 1, 64)
    tokens = np.arange(12, dtype=np.int32)
    opened(cache, 0, tokens)
    cache.close(0)
    opened(cache, 0, ids(50))
    assert len(match_of(cache, np.append(tokens, ids(0))).pages) == 2


def test_a_fork_shares_until_one_writes() -> None:
    cache = PageCache(20, PAGE, 2, 64)
    opened(cache, 0, np.arange(6, dtype=np.int32))
    cache.fork(0, 1)
    shared = table(cache, 0)
    assert table(cache, 1) == shared
    assert cache.shortage(np.array([0, 1]), np.array([7, 7])).tolist() == [1, 1]

    copy = cache.grow(1, 7)
    assert copy is not None
    assert (copy.source, copy.target) == (shared[1], table(cache, 1)[1])
    assert table(cache, 0) == shared
    assert table(cache, 1)[0] == shared[0]
    assert cache.grow(0, 7) is None
    assert cache.shortage(np.array([0, 1]), np.array([8, 8])).tolist() == [0, 0]
    cache.check_integrity()


def test_a_fork_at_a_pages_end_copies_nothing() -> None:
    cache = PageCache(20, PAGE, 2, 64)
    opened(cache, 0, np.arange(8, dtype=np.int32))
    cache.fork(0, 1)
    assert [cache.grow(slot, 9) for slot in (0, 1)] == [None, None]
    assert table(cache, 0)[:2] == table(cache, 1)[:2]
    assert table(cache, 0)[2] != table(cache, 1)[2]
    cache.check_integrity()


def test_a_window_leaves_null_pages() -> None:
    cache = PageCache(20, PAGE, 2, 64, window=5)
    tokens = np.arange(15, dtype=np.int32)
    prefixes = PrefixChain(PAGE).upto(tokens, 3)
    cache.open(0, cache.match(prefixes, 15), prefixes, 15)
    cache.note(0, prefixes, 12)
    assert [page == NULL_PAGE for page in table(cache, 0)] == [True, False, False, False]
    assert cache.num_used == 3
    cache.fork(0, 1)
    cache.close(0)
    cache.close(1)
    cache.check_integrity()
    assert cache.num_used == 0


def test_a_position_at_the_windows_edge_is_kept() -> None:
    cache = PageCache(20, PAGE, 1, 64, window=4)
    tokens = np.arange(12, dtype=np.int32)
    prefixes = PrefixChain(PAGE).upto(tokens, 3)
    cache.open(0, cache.match(prefixes, 12), prefixes, 12)
    for num_computed, first_kept in ((4, 0), (8, 1), (12, 2)):
        cache.note(0, prefixes, num_computed)
        assert table(cache, 0).count(NULL_PAGE) == first_kept


def test_a_sequence_is_never_longer_than_the_pool() -> None:
    assert PageCache(4, PAGE, 1, 1000).max_len == 12


@pytest.mark.parametrize("sizes", [(0, 1, 1), (1, 0, 1), (1, 1, 0)])
def test_empty_sizes_are_refused(sizes: tuple[int, int, int]) -> None:
    with pytest.raises(BadInput, match="1 or more each"):
        PageCache(4, *sizes)
