"""Names of prefixes: a digest for every full page, chained, so that one says all tokens up to its end."""

from __future__ import annotations

import numpy as np

from samebits.cache.origins import origin_of
from samebits.cache.pages import Prefix
from samebits.core.prefix_names import first_name, next_name


class PrefixChain:
    """The prefixes of one sequence's full pages, computed once, as far as asked for.

    `salt` goes into the first name: tenants with different salts never meet each other's pages, nor learn from the
    time of an answer what others have asked. So does the numerics version: pages of another never match.
    """

    def __init__(self, page_size: int, salt: bytes = b"") -> None:
        self._page_size, self._first = page_size, Prefix(first_name(salt), b"", origin_of(None, salt))
        self._prefixes: list[Prefix] = []

    def copy(self) -> PrefixChain:
        """A chain that goes its own way from here."""
        other = PrefixChain(self._page_size)
        other._first, other._prefixes = self._first, list(self._prefixes)
        return other

    def upto(self, tokens: np.ndarray, num_pages: int) -> list[Prefix]:
        """At least the first `num_pages` prefixes of int32 tokens, which must not differ from those given before."""
        done, size = self._prefixes, self._page_size
        last = done[-1] if done else self._first
        for page in range(len(done), num_pages):
            content = tokens[page * size : (page + 1) * size].tobytes()
            last = Prefix(next_name(last.digest, content), content, origin_of(last.origin, content))
            done.append(last)
        return done
