"""Pages of one pool: free, held by sequences, or free and still holding a prefix worth keeping."""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple, Protocol

from samebits.cache.origins import Origin, check_match
from samebits.core.errors import BadInput

NULL_PAGE = 0  # never handed out: stands in tables where a page was given back


class PageCopy(NamedTuple):
    """One page's contents to be written to another of its group before the step that needs it."""

    source: int
    target: int
    group: int = 0  # 0 for the first one, then those in windows, in their order


class Prefix(NamedTuple):
    """The content of a full page: the digest of the salt and all tokens up to its end, and its own tokens.

    origin   the salt and all those tokens in full while matches are checked, else None
    """

    digest: bytes
    tokens: bytes
    origin: Origin | None = None


class PageListener(Protocol):
    """Is told which prefixes can be found from now on, and which no longer. Called within a step: it returns at once.

    parent   the digest of the prefix that ends where this one's last page begins; None for a first page
    tokens   int32 bytes of the last page's own tokens
    """

    def stored(self, parent: bytes | None, digest: bytes, tokens: bytes) -> None: ...

    def removed(self, digest: bytes) -> None: ...


class PagePool:
    """Reference counts, free pages and the index of prefixes.

    A page whose count falls to 0 is blank when it holds no known prefix, else idle: it can be found again until it is
    needed, the one longest idle first.
    """

    def __init__(self, num_pages: int) -> None:
        if num_pages < 2:
            raise BadInput("cache", "num_pages", num_pages, "2 or more: page 0 is never used")
        self.num_pages = num_pages
        self._page_of: dict[bytes, int] = {}
        self.num_evicted = 0
        self.listener: PageListener | None = None
        self.clear()

    def clear(self) -> None:
        """Forget all holders and prefixes, in whatever state they are: every page is blank."""
        if self.listener is not None:
            for digest in self._page_of:
                self.listener.removed(digest)
        self._counts = [0] * self.num_pages
        self._blank = list(range(self.num_pages - 1, NULL_PAGE, -1))
        self._idle: OrderedDict[int, None] = OrderedDict()
        self._prefix_of: dict[int, Prefix] = {}
        self._page_of = {}

    @property
    def num_free(self) -> int:
        """Pages that can be taken now, idle ones included."""
        return len(self._blank) + len(self._idle)

    @property
    def num_idle(self) -> int:
        return len(self._idle)

    def is_shared(self, page: int) -> bool:
        return self._counts[page] > 1

    def is_idle(self, page: int) -> bool:
        return page in self._idle

    def take(self) -> int:
        """A page for one holder; blank ones first. BadInput when none is free: ask num_free before."""
        if self._blank:
            page = self._blank.pop()
        elif self._idle:
            page, _ = self._idle.popitem(last=False)
            self._forget(page)
            self.num_evicted += 1
        else:
            raise BadInput("cache", "pages", "none free", "a look at num_free before taking one")
        self._counts[page] = 1
        return page

    def take_many(self, count: int) -> list[int]:
        """As many pages, each for one holder."""
        num_blank = min(count, len(self._blank))
        pages = self._blank[len(self._blank) - num_blank :][::-1]
        del self._blank[len(self._blank) - num_blank :]
        for page in pages:
            self._counts[page] = 1
        return pages + [self.take() for _ in range(count - num_blank)]

    def hold(self, page: int) -> None:
        """One more holder of a page that is held or idle."""
        if self._counts[page] == 0:
            del self._idle[page]
        self._counts[page] += 1

    def hold_match(self, page: int, prefix: Prefix) -> None:
        """Add a holder of a page that was found for this prefix."""
        check_match(self._prefix_of[page], prefix)
        self.hold(page)

    def give_back(self, page: int) -> None:
        """One holder less."""
        count = self._counts[page] = self._counts[page] - 1
        if count == 0:
            if page in self._prefix_of:
                self._idle[page] = None
            else:
                self._blank.append(page)
        elif count < 0:
            self._counts[page] = 0
            raise BadInput("cache", "page", f"{page} given back twice", "once for every holder")

    def find(self, prefix: Prefix) -> int | None:
        """The page that holds exactly this; a digest alone is not believed."""
        page = self._page_of.get(prefix.digest)
        return page if page is not None and self._prefix_of[page].tokens == prefix.tokens else None

    def note(self, page: int, prefix: Prefix, parent: bytes | None = None) -> None:
        """The page is full and holds this prefix. The first page that does is the one to be found.

        parent   the digest of the prefix before it, for the listener
        """
        if page not in self._prefix_of and prefix.digest not in self._page_of:
            self._prefix_of[page] = prefix
            self._page_of[prefix.digest] = page
            if self.listener is not None:
                self.listener.stored(parent, prefix.digest, prefix.tokens)

    def _forget(self, page: int) -> None:
        digest = self._prefix_of.pop(page).digest
        del self._page_of[digest]
        if self.listener is not None:
            self.listener.removed(digest)

    def check_integrity(self, held: dict[int, int]) -> None:
        """BadInput unless free + idle + held = all, with `held` holders for each page."""
        blank, idle = set(self._blank), set(self._idle)
        counts = {page: n for page, n in enumerate(self._counts) if n}
        problems = {
            "a page listed free twice": len(blank) != len(self._blank),
            "a page that is blank and idle": bool(blank & idle),
            "a free page that is held": bool((blank | idle) & counts.keys()),
            "holders that do not add up": counts != held,
            "a page that is lost": len(blank) + len(idle) + len(counts) != self.num_pages - 1,
            "the null page in use": NULL_PAGE in blank | idle | counts.keys(),
            "an idle page without a prefix": not idle <= self._prefix_of.keys(),
            "a blank page with a prefix": bool(blank & self._prefix_of.keys()),
            "an index that disagrees": {p.digest: page for page, p in self._prefix_of.items()} != self._page_of,
        }
        if found := [text for text, is_wrong in problems.items() if is_wrong]:
            raise BadInput("cache", "pages", ", ".join(found), "free + idle + held = all")
