"""Names of prefixes: a digest for every full page, chained, so that one says all tokens up to its end."""

from __future__ import annotations

from hashlib import blake2b

import numpy as np

from samebits.cache.pages import Prefix
from samebits.core.numerics import NUMERICS_VERSION

DIGEST_BYTES = 16


class PrefixChain:
    """The prefixes of one sequence's full pages, computed once, as far as asked for.

    `salt` goes into the first digest: tenants with different salts never meet each other's pages, nor learn from the
    time of an answer what others have asked. So does the numerics version: pages of another never match.
    """

    def __init__(self, page_size: int, salt: bytes = b"") -> None:
        start = b"n%d/" % NUMERICS_VERSION + salt
        self._page_size, self._first = page_size, blake2b(start, digest_size=DIGEST_BYTES).digest()
        self._prefixes: list[Prefix] = []

    def copy(self) -> PrefixChain:
        """A chain that goes its own way from here."""
        other = PrefixChain(self._page_size)
        other._first, other._prefixes = self._first, list(self._prefixes)
        return other

    def upto(self, tokens: np.ndarray, num_pages: int) -> list[Prefix]:
        """At least the first `num_pages` prefixes of int32 tokens, which must not differ from those given before."""
        done, size = self._prefixes, self._page_size
        digest = done[-1].digest if done else self._first
        for page in range(len(done), num_pages):
            content = tokens[page * size : (page + 1) * size].tobytes()
            digest = blake2b(digest + content, digest_size=DIGEST_BYTES).digest()
            done.append(Prefix(digest, content))
        return done
