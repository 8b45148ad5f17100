"""Snapshots of states in slots: which are kept, what a match resumes from, and which copies are made."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samebits.cache import PageCache, Prefix, PrefixChain, SlotCopy
from samebits.cache.snapshots import SnapshotPool
from samebits.cache.states import SlotStates
from samebits.core.errors import BadInput

PAGE = 4


def prefixes_of(tokens: np.ndarray, salt: bytes = b"") -> list[Prefix]:
    return PrefixChain(PAGE, salt).upto(tokens, len(tokens) // PAGE)


def names(count: int) -> list[Prefix]:
    return [Prefix(bytes([i]) * 16, bytes([i])) for i in range(count)]


def test_the_one_unused_for_longest_goes_first() -> None:
    pool, (a, b, c) = SnapshotPool(5, 2), names(3)
    assert (pool.add(a), pool.add(b)) == (5, 6)
    pool.release()
    assert pool.use(a) == 5
    pool.release()
    assert pool.add(c) == 6
    assert (pool.find(a), pool.find(b), pool.find(c)) == (5, None, 6)
    assert pool.num_evicted == 1
    pool.check_integrity()


def test_one_that_is_asked_for_again_is_young_and_not_written_twice() -> None:
    pool, (a, b, c) = SnapshotPool(5, 2), names(3)
    pool.add(a), pool.add(b)
    assert pool.add(a) is None
    pool.release()
    assert pool.add(c) == 6


def test_what_a_copy_of_this_step_needs_stays() -> None:
    pool, (a, b, c) = SnapshotPool(5, 2), names(3)
    pool.add(a), pool.add(b)
    assert pool.add(c) is None
    pool.release()
    pool.use(a), pool.use(b)
    assert pool.add(c) is None
    pool.release()
    assert pool.add(c) == 5


def test_a_forged_digest_is_not_believed() -> None:
    pool, (a, b) = SnapshotPool(5, 2), names(2)
    pool.add(a)
    assert pool.find(Prefix(a.digest, b.tokens)) is None


def test_a_forgotten_snapshot_is_blank() -> None:
    pool, (a, b) = SnapshotPool(5, 1), names(2)
    pool.add(a)
    pool.release()
    pool.forget(5)
    pool.forget(5)
    assert pool.find(a) is None
    assert pool.add(b) == 5
    pool.check_integrity()


@given(st.integers(0, 3), st.lists(st.tuples(st.sampled_from(["add", "use", "release", "forget"]), st.integers(0, 5))))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_a_pool_adds_up(count: int, actions: list[tuple[str, int]]) -> None:
    """Against a list of the prefixes, the oldest first."""
    pool, known, busy = SnapshotPool(7, count), [], set()  # type: ignore[var-annotated]
    for action, number in actions:
        name = names(6)[number]
        is_held = name in known
        assert (pool.find(name) is not None) == is_held
        if action == "add":
            evictable = [k for k in known if k not in busy]
            slot = pool.add(name)
            if is_held:
                assert slot is None
                known.append(known.pop(known.index(name)))
            elif len(known) == count and not evictable:
                assert slot is None
            else:
                if len(known) == count:
                    known.remove(evictable[0])
                known.append(name)
                busy.add(name)
                assert slot == pool.find(name)
        elif action == "use" and is_held:
            pool.use(name)
            known.append(known.pop(known.index(name)))
            busy.add(name)
        elif action == "release":
            pool.release()
            busy.clear()
        elif action == "forget" and is_held and name not in busy:
            slot = pool.find(name)
            assert slot is not None
            pool.forget(slot)
            known.remove(name)
        pool.check_integrity()


def opened(cache: PageCache, slot: int, tokens: np.ndarray) -> int:
    """Opens a sequence and takes all its tokens as computed in one step; returns how many were there."""
    prefixes = prefixes_of(tokens)
    match = cache.match(prefixes, len(tokens))
    num_cached = cache.open(slot, match, prefixes, len(tokens))
    cache.note(slot, prefixes, len(tokens))
    assert cache.states is not None
    for i in cache.states.due(np.array([slot]), np.array([len(tokens)])):
        cache.states.reach(slot, prefixes, len(tokens))
        assert i == 0
    cache.check_integrity()
    return num_cached


def test_a_match_needs_pages_and_a_snapshot() -> None:
    cache = PageCache(40, PAGE, 4, 64, num_snapshots=2)
    tokens = np.arange(18, dtype=np.int32)
    assert opened(cache, 0, tokens) == 0
    assert cache.states is not None
    assert cache.states.hand_out() == (SlotCopy(0, 4, True),)
    match = cache.match(prefixes_of(tokens), 18)
    assert (len(match.pages), match.num_known, match.num_needed) == (4, 4, 1)
    match = cache.match(prefixes_of(tokens[:14]), 14)  # three pages, and no snapshot there
    assert (len(match.pages), match.num_known, match.num_needed) == (0, 3, 4)
    assert opened(cache, 1, tokens) == 16
    assert cache.states.hand_out() == (SlotCopy(4, 1, True),)


def test_the_longest_prefix_with_a_snapshot_is_resumed() -> None:
    cache = PageCache(40, PAGE, 4, 64, num_snapshots=4)
    tokens = np.arange(22, dtype=np.int32)
    opened(cache, 0, tokens[:9])
    opened(cache, 1, tokens)
    assert opened(cache, 2, np.append(tokens[:17], np.int32(50))) == 8
    assert opened(cache, 3, np.append(tokens[:17], np.int32(51))) == 16  # where the one before was cut


def test_promises_are_kept_or_end_with_their_sequence() -> None:
    cache = PageCache(40, PAGE, 4, 64, num_snapshots=4)
    tokens = np.arange(14, dtype=np.int32)
    opened(cache, 0, tokens)
    shorter = np.append(tokens[:9], np.int32(50))
    prefixes = prefixes_of(shorter)
    cache.open(1, cache.match(prefixes, 10), prefixes, 10)
    assert cache.match(prefixes, 10).coming_slot == 1  # the pages are there, the snapshot is not
    cache.close(1)
    assert cache.match(prefixes, 10).coming_slot is None
    cache.check_integrity()


def test_few_cuts_are_made_for_others() -> None:
    states = SlotStates(PAGE, 2, 4, 100)
    prefixes = names(60)
    states.open(0, prefixes, 0, 0, 241)
    for count in range(1, 50):
        states.want(0, prefixes, count)
    ends, position = [], 0
    while position < 241:
        position = states.chunk_end(0, 241, 241)
        ends.append(position)
        states.reach(0, prefixes, position)
    assert ends == [4, 8, 12, 16, 20, 241]


def test_a_state_that_is_not_known_is_not_kept() -> None:
    states = SlotStates(PAGE, 2, 4, 100)
    a, b = names(2)
    states.save(0, a)
    copies = states.hand_out()
    states.spoil(np.array([1]), copies)
    states.save(1, b)
    assert states.hand_out() == ()
    assert (states.pool.find(a), states.pool.find(b)) == (None, None)
    states.open(1, [], 0, 0, 3)
    states.save(1, b)
    assert states.hand_out() == (SlotCopy(1, 2, True),)


def test_fewer_than_no_snapshots_are_refused() -> None:
    with pytest.raises(BadInput, match="num_snapshots is -1, but must be 0 or more"):
        PageCache(4, PAGE, 1, 8, num_snapshots=-1)
