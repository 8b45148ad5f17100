"""Random bits as a pure function of a key and a counter: Threefry-2x32 with 20 rounds.

It needs only 32-bit add, xor and rotate, so every device can compute the same bits. Used for sampling
noise and for the inputs of conformance cases.
"""

from __future__ import annotations

from functools import lru_cache, reduce

import numpy as np

PARITY = np.uint32(0x1BD11BDA)
ROTATIONS = (13, 15, 26, 6, 17, 29, 16, 24)
EVEN_BYTES = np.uint32(0x00FF00FF)
CHUNK = 1 << 15  # words of a stream made together, so that all rounds find them in the cache

U32Pair = tuple[np.ndarray, np.ndarray]


def threefry(key: U32Pair, counter: U32Pair) -> U32Pair:
    """Two uint32 words per element; key and counter words broadcast against each other."""
    k0, k1, x0, x1 = (np.asarray(w, np.uint32) for w in (*key, *counter))
    keys = (k0, k1, k0 ^ k1 ^ PARITY)
    with np.errstate(over="ignore"):  # uint32 arithmetic is modulo 2^32 by definition
        x0, x1 = x0 + keys[0], x1 + keys[1]
        for block in range(5):
            for rotation in ROTATIONS[:4] if block % 2 == 0 else ROTATIONS[4:]:
                x0 = x0 + x1
                x1 = ((x1 << np.uint32(rotation)) | (x1 >> np.uint32(32 - rotation))) ^ x0
            x0 = x0 + keys[(block + 1) % 3]
            x1 = x1 + keys[(block + 2) % 3] + np.uint32(block + 1)
    return x0, x1


def split_seed(seed: np.ndarray | np.uint64) -> U32Pair:
    """A uint64 seed as the two words of a key, low word first."""
    seed = np.asarray(seed, np.uint64)
    return (seed & np.uint64(0xFFFFFFFF)).astype(np.uint32), (seed >> np.uint64(32)).astype(np.uint32)


def to_uniform(word: np.ndarray) -> np.ndarray:
    """uint32 to float32 in (0, 1): the top 23 bits, at the middle of their step, so never 0 or 1."""
    return ((word >> np.uint32(9)).astype(np.float32) + np.float32(0.5)) * np.float32(2.0**-23)


@lru_cache(maxsize=1 << 14)  # names of cases begin alike
def _fold(key: tuple[int, int], byte: int) -> tuple[int, int]:
    """threefry(key, (byte, 1)) in plain integers: a name has many bytes, and arrays of one element are slow."""
    mask = 0xFFFFFFFF
    keys = (*key, key[0] ^ key[1] ^ int(PARITY))
    x0, x1 = (byte + keys[0]) & mask, (1 + keys[1]) & mask
    for block in range(5):
        for rotation in ROTATIONS[:4] if block % 2 == 0 else ROTATIONS[4:]:
            x0 = (x0 + x1) & mask
            x1 = (((x1 << rotation) | (x1 >> (32 - rotation))) & mask) ^ x0
        x0 = (x0 + keys[(block + 1) % 3]) & mask
        x1 = (x1 + keys[(block + 2) % 3] + block + 1) & mask
    return x0, x1


class Stream:
    """Named, seeded inputs for conformance cases: the same numbers on every platform."""

    def __init__(self, name: str, seed: int = 0) -> None:
        """`name` sets the stream, so two tensors of a case never share numbers."""
        low, high = split_seed(np.uint64(seed))
        self._key = reduce(_fold, name.encode(), (int(low), int(high)))

    def _words(self, count: int) -> np.ndarray:
        key = np.uint32(self._key[0]), np.uint32(self._key[1])
        words = np.empty(count, np.uint32)
        for start in range(0, count, CHUNK):
            part = words[start : start + CHUNK]
            counters = np.arange(start, start + len(part), dtype=np.uint32)
            part[:] = threefry(key, (counters, np.uint32(0)))[0]  # type: ignore[arg-type]
        return words

    def child(self, name: str) -> Stream:
        """An independent stream under this one."""
        stream = Stream("")
        stream._key = reduce(_fold, f"/{name}".encode(), self._key)
        return stream

    def integers(self, low: int, high: int, shape: tuple[int, ...]) -> np.ndarray:
        """int32 in low .. high - 1."""
        words = self._words(int(np.prod(shape))).astype(np.uint64)
        return (low + (words * np.uint64(high - low) >> np.uint64(32)).astype(np.int64)).astype(np.int32).reshape(shape)

    def uniform(self, low: float, high: float, shape: tuple[int, ...]) -> np.ndarray:
        """float32 in (low, high)."""
        u = to_uniform(self._words(int(np.prod(shape)))).reshape(shape)
        return np.float32(low) + u * np.float32(high - low)

    def normal(self, shape: tuple[int, ...], scale: float = 1.0) -> np.ndarray:
        """float32, bell-shaped with unit variance: the sum of the four bytes of two words, scaled."""
        count = int(np.prod(shape))
        words = self._words(2 * count).reshape(2, count)
        bytes_in_two = (words & EVEN_BYTES) + ((words >> np.uint32(8)) & EVEN_BYTES)  # sums in halves of a word
        halves = bytes_in_two[0] + bytes_in_two[1]
        total = (halves & np.uint32(0xFFFF)) + (halves >> np.uint32(16))
        unit = 1.0 / float(np.sqrt(8 * (256**2 - 1) / 12))
        return ((total.astype(np.float32) - np.float32(8 * 127.5)) * np.float32(unit * scale)).reshape(shape)

    def permutation(self, n: int) -> np.ndarray:
        """int32 [n], each of 0 .. n - 1 once."""
        return np.argsort(self._words(n), kind="stable").astype(np.int32)
