"""What float tensors of drawn cases hold: the contents at which kernels go wrong, by name."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from samebits.core.numerics.counter import Stream

F = np.float32
SPECIAL = np.array(
    [0.0, -0.0, 2.0**-149, -(2.0**-130), 2.0**-126, 2.0**-24, -(2.0**-16), 1e-20, 1e4, -1e4, 1.0, -1.0], np.float32
)
# Magnitudes at which a rule of the arithmetic sets in: settling, the smallest block that is not all zeros, a float16
# that is not zero, exp that is not 1, the smallest normal number and what lies below.
BOUNDS = (2.0**-50, 2.0**-43, 2.0**-25, 2.0**-24, 2.0**-126, 2.0**-149, 0.0, 2.0**-49, 2.0**-60, 2.0**-63)
EDGES = (65504.0, 65519.996, 65520.0, -65520.0, 65536.0, 3.3895314e38, 3.4028235e38, -3.3961775e38)
NAN_PATTERNS = (0x7FC00000, 0x7FFFFFFF, 0xFFC00000, 0x7F800001)
# Kinds that reach the ends of float32 and bfloat16; others stay below 2^120, so that a few products are finite.
UNBOUNDED = ("edges", "extreme")
HALF = F(65504)
# 2^18 is 2^15 times the largest code or more, so that scales are finite in float16; other formats store a minimum too.
LARGEST = {
    **{"f16": HALF, "bf16": F(2.0**120), "f32": F(2.0**120)},
    **dict.fromkeys(("q4_0", "q5_0", "q8_0", "iq4_nl", "nvfp4", "mxfp4"), F(2.0**18)),
}
Shape = tuple[int, ...]


def with_special(x: np.ndarray) -> np.ndarray:
    """x with every third element a value that kernels trip over: zeros of both signs, denormals, far magnitudes."""
    flat = x.ravel().copy()
    places = np.arange(0, flat.size, 3)
    flat[places] = SPECIAL[np.arange(len(places)) % len(SPECIAL)]
    return flat.reshape(x.shape)


def _some(stream: Stream, shape: Shape, one_in: int) -> np.ndarray:
    """bool: about one element in so many."""
    return stream.child("some").integers(0, one_in, shape) == 0


def _mixed(stream: Stream, shape: Shape) -> np.ndarray:
    """Every row of a magnitude of its own, 2^-12 .. 2^12."""
    powers = stream.child("powers").integers(-12, 13, (*shape[:-1], 1) if shape else ())
    return stream.normal(shape) * np.exp2(powers.astype(np.float32))


def _halfway(stream: Stream, shape: Shape) -> np.ndarray:
    """Half-way between two neighbours in bfloat16 or float16, or just beside: rounding must look at every bit."""
    bits = stream.normal(shape).view(np.uint32).reshape(shape)
    kind = stream.child("kind").integers(0, 6, shape)
    bf16, f16 = (bits & np.uint32(0xFFFF0000)) | np.uint32(0x8000), (bits & np.uint32(0xFFFFE000)) | np.uint32(0x1000)
    step = np.choose(kind // 2, [0, 1, -1]).astype(np.int64)
    return (np.where(kind % 2 == 0, bf16, f16).astype(np.int64) + step).astype(np.uint32).view(np.float32)


def _equal(stream: Stream, shape: Shape) -> np.ndarray:
    return np.full(shape, stream.child("value").normal((1,))[0], np.float32)


def _plateaus(stream: Stream, shape: Shape) -> np.ndarray:
    """Few distinct values, the largest of each row in several far places."""
    return np.rint(np.clip(stream.normal(shape), F(-2), F(2)))


def _sorted(stream: Stream, shape: Shape) -> np.ndarray:
    """Rows in rising and falling order in turn: the extreme stands last, then first."""
    x = np.sort(stream.normal(shape), axis=-1) if shape else stream.normal(shape)
    if x.size:
        flat = x.reshape(-1, x.shape[-1] if shape else 1)
        flat[1::2] = flat[1::2, ::-1].copy()
    return x


def _zero_stretches(stream: Stream, shape: Shape) -> np.ndarray:
    """Stretches of 32 elements that are all zero, of either sign, between others; some rows whole."""
    x = stream.normal(shape)
    width = shape[-1] if shape else 1
    blocks = stream.child("blocks").integers(0, 3, (*shape[:-1], -(-width // 32)))
    dead = np.repeat(blocks == 0, 32, axis=-1)[..., :width].reshape(shape)
    return np.where(dead, np.where(_some(stream, shape, 2), F(0), F(-0.0)), x)


def _spikes(stream: Stream, shape: Shape) -> np.ndarray:
    """A few elements a thousand times as large."""
    x = stream.normal(shape)
    return np.where(_some(stream, shape, 37), x * F(1000), x)


def _code_ties(stream: Stream, shape: Shape) -> np.ndarray:
    """Halves of integers beside a 127: an int8 code for each is a tie."""
    x = np.rint(stream.uniform(-254, 254, shape)) * F(0.5)
    if shape:
        x[..., ::32] = F(127)
    return x


def _wide(stream: Stream, shape: Shape) -> np.ndarray:
    """Stretches of 32 elements, each of a magnitude of its own between 2^-52 and 2^14; every other row of one alone."""
    width = shape[-1] if shape else 1
    powers = stream.child("powers").integers(-52, 15, (*shape[:-1], -(-width // 32)))
    if powers.size:
        rows = powers.reshape(-1, powers.shape[-1])
        rows[::2] = rows[::2, :1]
    scales = np.exp2(np.repeat(powers, 32, axis=-1)[..., :width].reshape(shape).astype(np.float32))
    return stream.normal(shape) * scales


def _bounds(stream: Stream, shape: Shape) -> np.ndarray:
    """Of either sign, at a bound of the arithmetic or one step beside it; every fifth an ordinary number."""
    base = np.array(BOUNDS, np.float32)[stream.child("which").integers(0, len(BOUNDS), shape)]
    step = stream.child("step").integers(-1, 2, shape)
    pattern = np.maximum(base.view(np.int32).reshape(shape) + step, 0)
    signs = stream.child("sign").integers(0, 2, shape) << 31
    return np.where(_some(stream, shape, 5), stream.normal(shape), (pattern | signs).astype(np.int32).view(np.float32))


def _faint(stream: Stream, shape: Shape) -> np.ndarray:
    """Every element of a magnitude of its own between 2^-53 and 2: products and sums fall on both sides of 2^-50."""
    powers = stream.child("powers").integers(-52, 1, shape)
    return stream.normal(shape) * np.exp2(powers.astype(np.float32))


def _contrast(stream: Stream, shape: Shape) -> np.ndarray:
    """About half of the elements around 2^12, the others around 2^-44: what one makes of the other must be settled."""
    return stream.normal(shape) * np.where(_some(stream, shape, 2), F(2.0**12), F(2.0**-44))


def _rows_of(low: int, high: int) -> Callable[[Stream, Shape], np.ndarray]:
    """Return a maker of rows, each of a magnitude of its own, 2^low .. 2^high."""

    def make(stream: Stream, shape: Shape) -> np.ndarray:
        powers = stream.child("powers").integers(low, high + 1, (*shape[:-1], 1) if shape else ())
        return stream.normal(shape) * np.exp2(powers.astype(np.float32))

    return make


def _up_to(high: int) -> Callable[[Stream, Shape], np.ndarray]:
    """Return a maker of elements below 2^high, about half of them at 2^16 or more, each of a magnitude of its own."""

    def make(stream: Stream, shape: Shape) -> np.ndarray:
        powers = stream.child("powers").integers(16, high, shape).astype(np.float32)
        signs = np.where(stream.child("sign").integers(0, 2, shape) == 0, F(1), F(-1))
        large = np.exp2(powers) * signs * stream.child("part").uniform(1, 1.99, shape)
        return np.where(_some(stream, shape, 2), large.astype(np.float32), stream.normal(shape))

    return make


def _edges(stream: Stream, shape: Shape) -> np.ndarray:
    """Where float16 and bfloat16 end, between other values beyond float16."""
    chosen = np.array(EDGES, np.float32)[stream.child("which").integers(0, len(EDGES), shape)]
    return np.where(_some(stream, shape, 2), chosen, stream.normal(shape, 2.0**18))


def _nan(stream: Stream, shape: Shape) -> np.ndarray:
    """NaN of several patterns between numbers: it must stay one."""
    patterns = np.array(NAN_PATTERNS, np.uint32)[stream.child("which").integers(0, len(NAN_PATTERNS), shape)]
    return np.where(_some(stream, shape, 5), patterns.view(np.float32), stream.normal(shape))


def _minus_inf_rows(stream: Stream, shape: Shape) -> np.ndarray:
    """Every other row is -Inf as a whole."""
    x = stream.normal(shape)
    rows = x.reshape(-1, shape[-1] if shape else 1) if x.size else x
    rows[::2] = F(-np.inf)
    return x


def _infinite(stream: Stream, shape: Shape) -> np.ndarray:
    x = stream.normal(shape)
    return np.where(_some(stream, shape, 11), np.where(x > 0, F(np.inf), F(-np.inf)), x)


def _mostly_minus_inf(stream: Stream, shape: Shape) -> np.ndarray:
    """-Inf but for a few in each row, at least one."""
    x = stream.normal(shape)
    keep = _some(stream, shape, 5)
    width = shape[-1] if shape else 1
    one = stream.child("one").integers(0, max(width, 1), shape[:-1])
    first = (np.arange(width) == one[..., None]).reshape(shape)
    return np.where(keep | first, x, F(-np.inf))


KINDS: dict[str, Callable[[Stream, Shape], np.ndarray]] = {
    "normal": lambda stream, shape: stream.normal(shape),
    "uniform": lambda stream, shape: stream.uniform(-2, 2, shape),
    "special": lambda stream, shape: with_special(stream.normal(shape)),
    "mixed": _mixed,
    "halfway": _halfway,
    "tiny": lambda stream, shape: stream.normal(shape, 2.0**-30),  # nearly all below float16's smallest
    "large": lambda stream, shape: stream.normal(shape, 2.0**13),
    "zeros": lambda stream, shape: np.zeros(shape, np.float32),
    "zero-stretches": _zero_stretches,
    "spikes": _spikes,
    "code-ties": _code_ties,
    "equal": _equal,
    "plateaus": _plateaus,
    "sorted": _sorted,
    "wide": _wide,
    "low": lambda stream, shape: stream.normal(shape, 100.0) - F(20_000),
    "sunken": lambda stream, shape: stream.normal(shape, 8.0) - F(20),  # sigmoids from 0 to 1, most of them faint
    "tails": lambda stream, shape: stream.uniform(-16, 16, shape),  # where erf and sigmoid are close to their limits
    "bounds": _bounds,
    "faint": _faint,
    "contrast": _contrast,
    "edges": _edges,
    # beyond float16: "beyond" has finite squares of products, "vast" finite squares
    "beyond": _rows_of(17, 26),
    "vast": _rows_of(44, 50),
    "up-to-2^80": _up_to(80),
    "extreme": _up_to(127),
    "nan": _nan,
    "infinite": _infinite,
    "minus-inf-rows": _minus_inf_rows,
    "mostly-minus-inf": _mostly_minus_inf,
}


def contents(kind: str, stream: Stream, shape: Shape, fmt: str) -> np.ndarray:
    """float32 of a kind, finite ones kept within what the format holds."""
    x = KINDS[kind](stream, shape)
    if kind in UNBOUNDED and fmt != "f16":
        return x
    largest = LARGEST.get(fmt, HALF)
    return np.where(np.isfinite(x), np.clip(x, -largest, largest), x).astype(np.float32)
