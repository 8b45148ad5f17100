"""Random bits as a pure function of a key and a counter: Threefry-2x32 with 20 rounds.

It needs only 32-bit add, xor and rotate, so every device can compute the same bits. Used for sampling
noise and for the inputs of conformance cases.
"""

from __future__ import annotations

import numpy as np

PARITY = np.uint32(0x1BD11BDA)
ROTATIONS = (13, 15, 26, 6, 17, 29, 16, 24)

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


class Stream:
    """Named, seeded inputs for conformance cases: the same numbers on every platform."""

    def __init__(self, name: str, seed: int = 0) -> None:
        """`name` sets the stream, so two tensors of a case never share numbers."""
        self._key = split_seed(np.uint64(seed))
        self._path = name

    def _words(self, count: int) -> np.ndarray:
        key: U32Pair = self._key
        for byte in self._path.encode():
            key = threefry(key, (np.uint32(byte), np.uint32(1)))  # type: ignore[arg-type]
        return threefry(key, (np.arange(count, dtype=np.uint32), np.uint32(0)))[0]  # type: ignore[arg-type]

    def child(self, name: str) -> Stream:
        """An independent stream under this one."""
        stream = Stream(f"{self._path}/{name}")
        stream._key = self._key
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
        total = sum(((words >> np.uint32(shift)) & np.uint32(0xFF)).sum(axis=0) for shift in (0, 8, 16, 24))
        unit = 1.0 / float(np.sqrt(8 * (256**2 - 1) / 12))
        return ((np.asarray(total).astype(np.float32) - np.float32(8 * 127.5)) * np.float32(unit * scale)).reshape(
            shape
        )

    def permutation(self, n: int) -> np.ndarray:
        """int32 [n], each of 0 .. n - 1 once."""
        return np.argsort(self._words(n), kind="stable").astype(np.int32)
