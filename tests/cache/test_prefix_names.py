"""One name, one content: no salt continues another conversation, and a debug check compares all tokens of a match."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import blake2b

import numpy as np
import pytest

from samebits.cache import PageCache, Prefix, PrefixChain, origins
from samebits.cache import prefix as prefix_room
from samebits.cache.pages import PagePool
from samebits.cache.snapshots import SnapshotPool
from samebits.cache.windows import WindowPages
from samebits.core import prefix_names
from samebits.core.errors import BadInput

PAGE = 16
# Found once by a search (17,554,113 tries, 10 s): a page of these tokens had an old name that starts with "n1/", as did
# the input of every first name.
FOUND = np.array([*range(3, 15), 4, 40, 105, 179], np.int32)
SECOND, THIRD = np.arange(100, 116, dtype=np.int32), np.arange(40, 56, dtype=np.int32)
VICTIM = np.concatenate([FOUND, SECOND, THIRD])


def old_first_name(salt: bytes) -> bytes:
    return blake2b(b"n1/" + salt, digest_size=16).digest()


def old_next_name(name: bytes, content: bytes) -> bytes:
    return blake2b(name + content, digest_size=16).digest()


def forged_salt() -> bytes:
    """A salt whose old first name is the old name of the victim's first two pages."""
    name = old_next_name(old_first_name(b""), FOUND.tobytes())
    assert name.startswith(b"n1/")
    return name.removeprefix(b"n1/") + SECOND.tobytes()


@pytest.fixture
def old_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefix_room, "first_name", old_first_name)
    monkeypatch.setattr(prefix_room, "next_name", old_next_name)


def opened(cache: PageCache, slot: int, tokens: np.ndarray, salt: bytes = b"") -> int:
    """Open a sequence and take all its tokens as computed; return how many were there."""
    prefixes = PrefixChain(cache.page_size, salt).upto(tokens, len(tokens) // cache.page_size)
    num_cached = cache.open(slot, cache.match(prefixes, len(tokens)), prefixes, len(tokens))
    cache.note(slot, prefixes, len(tokens))
    return num_cached


def names(tokens: np.ndarray, salt: bytes = b"") -> list[bytes]:
    return [p.digest for p in PrefixChain(PAGE, salt).upto(tokens, len(tokens) // PAGE)]


def test_a_salt_that_was_made_to_continue_a_conversation_finds_nothing() -> None:
    cache = PageCache(20, PAGE, 2, 128)
    opened(cache, 0, VICTIM)
    assert opened(cache, 1, np.append(THIRD, np.int32(7)), forged_salt()) == 0


def test_the_reverse_poisons_nobody() -> None:
    cache = PageCache(20, PAGE, 3, 128)
    opened(cache, 0, VICTIM[: 2 * PAGE])  # a prompt that many requests start with
    opened(cache, 1, np.append(THIRD, np.int32(7)), forged_salt())
    assert opened(cache, 2, np.append(VICTIM, np.int32(7))) == 2 * PAGE


def salts_from(name: bytes, content: bytes) -> Iterator[bytes]:
    """What an attacker would try who knows a name: everything that the next name could be hashed from."""
    for joined in (
        name,
        name + content,
        content,
        content + name,
        name[:16] + content,
        name + len(content).to_bytes(8, "big"),
    ):
        yield joined
        yield from (joined[start:] for start in (1, 3, 16))


def test_no_salt_of_known_names_starts_where_another_prefix_ends() -> None:
    known = names(VICTIM)
    page_names = {*known, *names(VICTIM, b"other")}
    for name in [prefix_names.first_name(b""), *known]:
        for content in (FOUND.tobytes(), SECOND.tobytes(), b""):
            for salt in filter(None, salts_from(name, content)):
                assert prefix_names.first_name(salt) not in page_names
                assert not set(names(VICTIM, salt)) & page_names


def test_first_names_and_next_names_are_two_functions() -> None:
    """Fails for any naming that hashes both kinds of input alike, whatever is put in front of them."""
    joined = bytes(range(64))
    digests = {
        prefix_names.first_name(joined),
        *(prefix_names.next_name(joined[:i], joined[i:]) for i in (0, 16, 32)),
    }
    assert len(digests) == 2


@pytest.mark.usefixtures("old_names")
@pytest.mark.parametrize("victim_first", [True, False])
def test_the_check_of_matches_finds_the_old_names_collision(victim_first: bool) -> None:
    cache = PageCache(20, PAGE, 3, 128)
    victim, attack = (np.append(tokens, np.int32(7)) for tokens in (VICTIM, THIRD))
    opened(cache, 0, victim if victim_first else VICTIM[: 2 * PAGE])
    if victim_first:
        with pytest.raises(BadInput, match="other tokens or another salt"):
            opened(cache, 1, attack, forged_salt())
    else:
        opened(cache, 1, attack, forged_salt())
        with pytest.raises(BadInput, match="other tokens or another salt"):
            opened(cache, 2, victim)


def find_in_pages(held: list[Prefix], asked: list[Prefix]) -> None:
    pool = PagePool(9)
    page = pool.take()
    pool.note(page, held[-1])
    assert pool.find(asked[-1]) == page
    pool.hold_match(page, asked[-1])


def find_in_windows(held: list[Prefix], asked: list[Prefix]) -> None:
    group = WindowPages(20, 9, PAGE, (2, 8))
    group.advance(np.array([0]), np.array([0]), np.array([len(VICTIM)]), 1)
    group.note(0, held, len(VICTIM))
    assert group.resumable(asked, 3) == 3
    group.open(1, asked, 3)


def find_in_snapshots(held: list[Prefix], asked: list[Prefix]) -> None:
    pool = SnapshotPool(2, 2)
    slot = pool.add(held[-1])
    assert slot is not None
    assert pool.find(asked[-1]) == slot
    pool.use(asked[-1])


@pytest.mark.parametrize("find", [find_in_pages, find_in_windows, find_in_snapshots])
def test_the_check_of_matches_looks_at_all_tokens(
    find: Callable[[list[Prefix], list[Prefix]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A planted defect: names that forget all pages but the last."""
    other = VICTIM.copy()
    other[3] += 1
    monkeypatch.setattr(prefix_room, "next_name", lambda name, content: prefix_names.next_name(b"", content))
    held, asked = (PrefixChain(PAGE).upto(tokens, 3) for tokens in (VICTIM, other))
    find(held, PrefixChain(PAGE).upto(VICTIM, 3))
    with pytest.raises(BadInput, match="other tokens or another salt"):
        find(held, asked)


def test_the_check_is_on_in_tests_and_costs_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    (prefix,) = PrefixChain(PAGE).upto(FOUND, 1)
    assert prefix.origin is not None
    monkeypatch.setattr(origins, "CHECKS_MATCHES", False)
    (prefix,) = PrefixChain(PAGE).upto(FOUND, 1)
    assert prefix.origin is None
