"""Names of prompts' prefixes: chained digests, each of which stands for a salt and all tokens up to its end.

A first name and a name that continues another one come from two different functions, which BLAKE2's personalization
separates. So no salt can be made whose first name continues somebody else's prefix, as was possible when both were
plain digests of joined bytes. Names have 32 bytes, so that nobody finds two prefixes with one name either.
"""

from __future__ import annotations

from hashlib import blake2b

from samebits.core.numerics import NUMERICS_VERSION

NAME_BYTES = 32
_FIRST, _NEXT = (blake2b(digest_size=NAME_BYTES, person=person) for person in (b"samebits first", b"samebits next"))


def first_name(salt: bytes) -> bytes:
    """Return the name of the empty prefix under a salt, for this numerics version."""
    digest = _FIRST.copy()
    digest.update(b"n%d/" % NUMERICS_VERSION + salt)
    return digest.digest()


def next_name(name: bytes, content: bytes) -> bytes:
    """Return the name of a prefix with `content` behind it. All contents of a chain have the same length."""
    digest = _NEXT.copy()
    digest.update(name + content)
    return digest.digest()
