"""Random sequences over one cache, against memory that is a dict: nobody ever reads what is not its own history."""

from __future__ import annotations

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from samebits.cache import PageCache, PageCopy, PrefixChain
from samebits.cache.pages import NULL_PAGE

MAX_SEQUENCES, MAX_LEN = 4, 40
STEM = (0, 1, 0, 1, 1, 0, 1, 1, 1, 0, 0, 0, 1, 0, 1, 0, 0, 1)  # prompts share starts of it


class CacheMachine(RuleBasedStateMachine):
    """Memory maps (page, place) to the salt and the whole history of the token written there."""

    @initialize(
        page_size=st.sampled_from([1, 4, 16]),
        spare_pages=st.sampled_from([0, 2, 60]),
        window=st.one_of(st.none(), st.integers(0, 12)),
    )
    def start(self, page_size: int, spare_pages: int, window: int | None) -> None:
        num_pages = 1 + -(-MAX_LEN // page_size) + spare_pages
        self.cache = PageCache(num_pages, page_size, MAX_SEQUENCES, MAX_LEN, window=window)
        self.memory: dict[tuple[int, int], tuple[bytes, tuple[int, ...]]] = {}
        self.tokens: dict[int, tuple[int, ...]] = {}
        self.chains: dict[int, PrefixChain] = {}
        self.salts: dict[int, bytes] = {}

    def compute(self, slot: int, start: int, copy: PageCopy | None = None) -> None:
        """Writes the tokens from `start` on, reads all that their queries see, and tells the cache."""
        size, tokens = self.cache.page_size, self.tokens[slot]
        table = self.cache.tables[slot, : self.cache.num_held[slot]].tolist()
        if copy:
            for place in range(size):
                self.memory[copy.target, place] = self.memory.get((copy.source, place), (b"", ()))
        for position in range(start, len(tokens)):
            page = table[position // size]
            assert page != NULL_PAGE
            assert not self.cache.pool.is_shared(page)
            self.memory[page, position % size] = (self.salts[slot], tokens[: position + 1])
        oldest = 0 if self.cache.window is None else max(0, start - self.cache.window)
        for position in range(oldest, len(tokens)):
            held = self.memory[table[position // size], position % size]
            assert held == (self.salts[slot], tokens[: position + 1])
        if len(self.cache.crossings(np.array([slot]), np.array([len(tokens)]))):
            prefixes = self.chains[slot].upto(np.array(tokens, np.int32), len(tokens) // size)
            self.cache.note(slot, prefixes, len(tokens))

    @precondition(lambda self: len(self.tokens) < MAX_SEQUENCES)
    @rule(
        stem=st.integers(0, len(STEM)),
        tail=st.lists(st.integers(0, 1), min_size=1, max_size=8),
        salt=st.sampled_from([b"", b"other"]),
    )
    def open(self, stem: int, tail: list[int], salt: bytes) -> None:
        tokens, chain = (*STEM[:stem], *tail), PrefixChain(self.cache.page_size, salt)
        prefixes = chain.upto(np.array(tokens, np.int32), len(tokens) // self.cache.page_size)
        match = self.cache.match(prefixes, len(tokens))
        if match.num_needed > self.cache.num_free:
            return
        slot = min(set(range(MAX_SEQUENCES)) - self.tokens.keys())
        self.tokens[slot], self.chains[slot], self.salts[slot] = tokens, chain, salt
        num_free = self.cache.num_free
        self.compute(slot, self.cache.open(slot, match, prefixes, len(tokens)))
        if self.cache.window is None:
            assert self.cache.num_free == num_free - match.num_needed

    @precondition(lambda self: self.tokens)
    @rule(which=st.integers(0, MAX_SEQUENCES), new=st.lists(st.integers(0, 1), min_size=1, max_size=6))
    def decode(self, which: int, new: list[int]) -> None:
        slot = sorted(self.tokens)[which % len(self.tokens)]
        for token in new:
            wanted = len(self.tokens[slot]) + 1
            short = self.cache.shortage(np.array([slot]), np.array([wanted]))[0]
            if wanted > MAX_LEN or short > self.cache.num_free:
                return
            num_free = self.cache.num_free
            copy = self.cache.grow(slot, wanted)
            assert self.cache.num_free == num_free - short
            self.tokens[slot] += (token,)
            self.compute(slot, wanted - 1, copy)

    @precondition(lambda self: 0 < len(self.tokens) < MAX_SEQUENCES)
    @rule(which=st.integers(0, MAX_SEQUENCES))
    def fork(self, which: int) -> None:
        parent = sorted(self.tokens)[which % len(self.tokens)]
        child = min(set(range(MAX_SEQUENCES)) - self.tokens.keys())
        self.cache.fork(parent, child)
        self.tokens[child], self.salts[child] = self.tokens[parent], self.salts[parent]
        self.chains[child] = self.chains[parent].copy()

    @precondition(lambda self: self.tokens)
    @rule(which=st.integers(0, MAX_SEQUENCES))
    def close(self, which: int) -> None:
        slot = sorted(self.tokens)[which % len(self.tokens)]
        self.cache.close(slot)
        del self.tokens[slot]

    @invariant()
    def pages_add_up(self) -> None:
        if hasattr(self, "cache"):
            self.cache.check_integrity()

    def teardown(self) -> None:
        for slot in getattr(self, "tokens", {}):
            self.cache.close(slot)
        self.pages_add_up()
        assert not hasattr(self, "cache") or self.cache.num_used == 0


CacheMachine.TestCase.settings = settings(
    max_examples=100, stateful_step_count=30, derandomize=True, deadline=None, database=None
)
TestCacheMachine = CacheMachine.TestCase
