"""The pool of pages: who gets which page next, and which prefix is still found."""

from __future__ import annotations

import numpy as np
import pytest

from samebits.cache import Prefix, PrefixChain
from samebits.cache.pages import NULL_PAGE, PagePool
from samebits.core.errors import BadInput


def prefixes_of(tokens: list[int], page_size: int = 2, salt: bytes = b"") -> list[Prefix]:
    array = np.array(tokens, np.int32)
    return PrefixChain(page_size, salt).upto(array, len(array) // page_size)


def test_page_0_is_never_handed_out() -> None:
    pool = PagePool(5)
    assert sorted(pool.take() for _ in range(4)) == [1, 2, 3, 4]
    with pytest.raises(BadInput, match="none free"):
        pool.take()


def test_a_pool_of_the_null_page_alone_is_refused() -> None:
    with pytest.raises(BadInput, match="2 or more"):
        PagePool(1)


def test_giving_back_twice_is_refused_and_changes_nothing() -> None:
    pool = PagePool(3)
    page = pool.take()
    pool.give_back(page)
    with pytest.raises(BadInput, match="given back twice"):
        pool.give_back(page)
    pool.check_integrity({})
    assert pool.num_free == 2


def test_the_null_page_cannot_be_given_back() -> None:
    pool = PagePool(3)
    with pytest.raises(BadInput, match="given back twice"):
        pool.give_back(NULL_PAGE)
    pool.check_integrity({})


def test_blank_pages_go_before_idle_ones_and_those_by_age() -> None:
    pool = PagePool(4)
    old, new, blank = pool.take(), pool.take(), pool.take()
    for page, prefix in zip((new, old), prefixes_of([1, 2, 3, 4]), strict=True):
        pool.note(page, prefix)
    for page in (old, blank, new):
        pool.give_back(page)
    assert pool.num_idle == 2
    assert [pool.take() for _ in range(3)] == [blank, old, new]
    assert pool.num_evicted == 2


def test_a_hit_makes_an_idle_page_young_again() -> None:
    pool = PagePool(3)
    first, second = pool.take(), pool.take()
    for page, prefix in zip((first, second), prefixes_of([1, 2, 3, 4]), strict=True):
        pool.note(page, prefix)
        pool.give_back(page)
    pool.hold(first)
    pool.give_back(first)
    assert pool.take() == second


def test_a_prefix_is_found_until_its_page_is_taken() -> None:
    pool = PagePool(2)
    prefix = prefixes_of([7, 8])[0]
    page = pool.take()
    assert pool.find(prefix) is None
    pool.note(page, prefix)
    pool.give_back(page)
    assert pool.find(prefix) == page
    pool.take()
    assert pool.find(prefix) is None


def test_a_forged_digest_is_not_believed() -> None:
    pool = PagePool(2)
    mine, other = prefixes_of([7, 8])[0], prefixes_of([1, 2])[0]
    pool.note(pool.take(), mine)
    assert pool.find(Prefix(mine.digest, other.tokens)) is None
    assert pool.find(mine) is not None


def test_of_two_pages_with_one_prefix_the_first_is_found() -> None:
    pool = PagePool(3)
    prefix = prefixes_of([7, 8])[0]
    first, second = pool.take(), pool.take()
    pool.note(first, prefix)
    pool.note(second, prefix)
    pool.give_back(second)
    pool.give_back(first)
    assert pool.find(prefix) == first
    assert pool.num_idle == 1
    pool.check_integrity({})


def plain(prefixes: list[Prefix]) -> list[tuple[bytes, bytes]]:
    """Names and tokens, without what a check of matches keeps."""
    return [(prefix.digest, prefix.tokens) for prefix in prefixes]


def test_a_chain_says_all_tokens_up_to_a_pages_end() -> None:
    one, other = prefixes_of([1, 2, 3, 4]), prefixes_of([9, 2, 3, 4])
    assert one[1].tokens == other[1].tokens
    assert one[1].digest != other[1].digest
    assert plain(one) == plain(prefixes_of([1, 2, 3, 4, 5]))


def test_salt_goes_into_every_digest() -> None:
    mine, theirs = prefixes_of([1, 2, 3, 4], salt=b"a"), prefixes_of([1, 2, 3, 4], salt=b"b")
    assert not {p.digest for p in mine} & {p.digest for p in theirs}


def test_a_copied_chain_goes_its_own_way() -> None:
    chain = PrefixChain(2)
    chain.upto(np.array([1, 2], np.int32), 1)
    other = chain.copy()
    assert plain(other.upto(np.array([1, 2, 5, 6], np.int32), 2)) == plain(prefixes_of([1, 2, 5, 6]))
    assert plain(chain.upto(np.array([1, 2, 3, 4], np.int32), 2)) == plain(prefixes_of([1, 2, 3, 4]))
