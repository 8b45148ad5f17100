"""Counter-based random numbers: published vectors, ranges, independence of shape."""

from __future__ import annotations

import numpy as np
import pytest

from samebits.core.numerics.counter import Stream, split_seed, threefry, to_uniform

U = np.uint32


@pytest.mark.parametrize(
    ("key", "counter", "want"),
    [  # Random123's known answers for threefry2x32, 20 rounds
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF,) * 2, (0xFFFFFFFF,) * 2, (0x1CB996FC, 0xBB002BE7)),
        ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_threefry_gives_the_published_words(key: tuple, counter: tuple, want: tuple) -> None:
    got = threefry((U(key[0]), U(key[1])), (U(counter[0]), U(counter[1])))
    assert (int(got[0]), int(got[1])) == want


def test_uniform_is_never_zero_or_one() -> None:
    u = to_uniform(np.array([0, 0xFFFFFFFF, 0x80000000], U))
    assert u.dtype == np.float32
    assert u.min() > 0
    assert u.max() < 1


def test_seed_words() -> None:
    low, high = split_seed(np.uint64(0x1122334455667788))
    assert (int(low), int(high)) == (0x55667788, 0x11223344)


def test_a_stream_is_its_name_and_seed() -> None:
    a = Stream("x", 1).normal((3, 4))
    assert a.tobytes() == Stream("x", 1).normal((3, 4)).tobytes()
    assert a.tobytes() != Stream("y", 1).normal((3, 4)).tobytes()
    assert a.tobytes() != Stream("x", 2).normal((3, 4)).tobytes()
    assert Stream("a").child("b").normal((5,)).tobytes() == Stream("a/b").normal((5,)).tobytes()


def test_distributions() -> None:
    normal = Stream("n").normal((100_000,))
    assert abs(normal.mean()) < 0.02
    assert abs(normal.std() - 1) < 0.02
    integers = Stream("i").integers(-3, 5, (10_000,))
    assert integers.dtype == np.int32
    assert set(integers.tolist()) == set(range(-3, 5))
    uniform = Stream("u").uniform(2, 3, (10_000,))
    assert uniform.min() >= 2
    assert uniform.max() <= 3
    assert sorted(Stream("p").permutation(50).tolist()) == list(range(50))
