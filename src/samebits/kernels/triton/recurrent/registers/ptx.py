"""PTX of a chunk's long steps; rows lie in shared memory.

A thread has one run of 8 elements of K and some columns: a number that is loaded meets several of them, since shared
memory delivers 128 bytes a cycle and the threads could multiply four times as much. Products are rounded before they
are added. Loops take several rows a turn, one is loaded while another is used: what does not fit the first instruction
cache (some 700 instructions) runs at half speed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from samebits.core.numerics.settling import SMALLEST
from samebits.ops.slots import CHUNK

ROW_BYTES = 512  # of k, of q, and of a row's sums of four warps
COLUMN_BYTES = 128  # of a row of 32 columns
PADDED_BYTES = 528  # of a row of k or q where threads read different rows: so their pieces are in different banks
SMALLEST_BITS = f"0f{SMALLEST.view('uint32'):08x}"


def _text(registers: Iterable[str], lines: Iterable[str]) -> str:
    """A block of statements; a line that ends in a colon is a label."""
    body = "\n".join(line if line.endswith(":") else f"{line};" for line in lines)
    return "{ " + " ".join(f".reg {names};" for names in registers) + "\n" + body + " }"


def _settle(x: str) -> list[str]:
    """x settled in place; `size` and `small` are its registers."""
    return [f"abs.f32 size, {x}", f"setp.lt.f32 small, size, {SMALLEST_BITS}", f"selp.f32 {x}, 0f00000000, {x}, small"]


def _load(to: str, address: str, count: int) -> list[str]:
    """`count` numbers side by side, a multiple of 4."""
    return [
        f"ld.shared.v4.f32 {{{to}{n}, {to}{n + 1}, {to}{n + 2}, {to}{n + 3}}}, [{address}+{4 * n}]"
        for n in range(0, count, 4)
    ]


def _loop(
    rows: int, load: Callable[[str, int], list[str]], use: Callable[[str, int], list[str]], end: list[str]
) -> list[str]:
    """Over a chunk's rows, so many a turn: load(registers, row of this turn) and use(...) alike, then `end`."""
    lines = [*load("a", 0), "mov.b32 row, 0", "AGAIN:"]
    for n in range(rows):
        lines += [*load("ba"[n % 2], n + 1), *use("ab"[n % 2], n)]
    return [*lines, *end, f"add.u32 row, row, {rows}", f"setp.lt.u32 more, row, {CHUNK}", "@more bra AGAIN"]


def _join_runs(rows: int, columns: int, lanes: int) -> list[str]:
    """c{row}_0 = the sum over the runs of `lanes` lanes, by adjacent pairs.

    A lane keeps half of its columns while it has several: in the end another one than its neighbours, or the same one.
    """
    lines, width, lane = [], columns, 1
    while lane < lanes:
        half = max(width // 2, 1)
        places = [f"{r}_{c}" for r in range(rows) for c in range(half)]
        if width > 1:
            for r, c in ((r, c) for r in range(rows) for c in range(half)):
                lines.append(f"selp.f32 p{r}_{c}, c{r}_{c}, c{r}_{c + half}, bit{lane}")
                lines.append(f"selp.f32 c{r}_{c}, c{r}_{c + half}, c{r}_{c}, bit{lane}")
        else:
            lines += [f"mov.f32 p{at}, c{at}" for at in places]
        lines += [f"shfl.sync.bfly.b32 p{at}, p{at}, {lane}, 0x1f, 0xffffffff" for at in places]
        lines += [f"add.rn.f32 c{at}, c{at}, p{at}" for at in places]
        width, lane = half, 2 * lane
    return lines


def dots_ptx(columns: int, lanes: int) -> str:
    """Sums over a warp's part of K, in head order, of all rows: output 0 is nothing.

    Inputs: the state, 8 elements of K of each column; the address of this run in row 0, that of the sum of row 0 and
    the kept column (steps.kept_column); the thread. Rows and sums may be the same memory: sums are stored when all
    lanes have the rows, and have loaded the next one.
    """
    size, rows = 8 * columns, 4

    def load(names: str, row: int) -> list[str]:
        return _load(names, f"from+{row * ROW_BYTES}", 8)

    def use(names: str, row: int) -> list[str]:
        lines = [f"mul.rn.f32 c{row}_{c}, {names}0, ${8 * c + 1}" for c in range(columns)]
        for i in range(1, 8):
            lines += [f"mul.rn.f32 p{row}_{c}, {names}{i}, ${8 * c + i + 1}" for c in range(columns)]
            lines += [f"add.rn.f32 c{row}_{c}, c{row}_{c}, p{row}_{c}" for c in range(columns)]
        return lines

    lines = [f"mov.b32 from, ${size + 1}", f"mov.b32 to, ${size + 2}"]
    for bit in (1, 2):
        lines += [f"and.b32 row, ${size + 3}, {bit}", f"setp.ne.u32 bit{bit}, row, 0"]
    end = _join_runs(rows, columns, lanes) + [f"st.shared.f32 [to+{r * ROW_BYTES}], c{r}_0" for r in range(rows)]
    end += [f"add.u32 {at}, {at}, {rows * ROW_BYTES}" for at in ("from", "to")]
    sums = ", ".join(f"c{r}_<{columns}>, p{r}_<{columns}>" for r in range(rows))
    registers = [".b32 from, to, row", ".pred more, bit1, bit2", f".f32 a<8>, b<8>, {sums}"]
    return _text(registers, [*lines, *_loop(rows, load, use, end), "mov.b32 $0, 0"])


def move_ptx(columns: int) -> str:
    """The state at the chunk's end: outputs and inputs are 8 elements of K of each column.

    Further inputs: e^G_15, the addresses of this run in row 0 of k and of the first column in row 0 of the faded u.
    """
    size = 8 * columns

    def load(names: str, row: int) -> list[str]:
        to = ", ".join(f"u{names}{c}" for c in range(columns))
        vector = f".v{columns}" if columns > 1 else ""
        return [
            f"ld.shared{vector}.f32 {{{to}}}, [u_at+{row * COLUMN_BYTES}]",
            *_load(names, f"from+{row * ROW_BYTES}", 8),
        ]

    def use(names: str, _: int) -> list[str]:
        lines = []
        for c in range(columns):
            lines += [f"mul.rn.f32 p{i}, {names}{i}, u{names}{c}" for i in range(8)]
            lines += [f"add.rn.f32 s{8 * c + i}, s{8 * c + i}, p{i}" for i in range(8)]
        return lines

    fade, k_at, u_at = (f"${2 * size + n}" for n in range(3))
    lines = [f"mov.b32 from, {k_at}", f"mov.b32 u_at, {u_at}"]
    for n in range(size):
        lines += [f"mul.rn.f32 s{n}, {fade}, ${size + n}", *_settle(f"s{n}")]
    lines += _loop(2, load, use, [f"add.u32 from, from, {2 * ROW_BYTES}", f"add.u32 u_at, u_at, {2 * COLUMN_BYTES}"])
    for n in range(size):
        lines += [*_settle(f"s{n}"), f"mov.f32 ${n}, s{n}"]
    floats = f".f32 a<8>, b<8>, ua<{columns}>, ub<{columns}>, s<{size}>, p<8>, size"
    return _text([".b32 from, u_at, row", ".pred more, small", floats], lines)


def solve_ptx() -> str:
    """u in the place of what stands before the sum over rows, by the first warp; output 0 is nothing.

    Inputs: the thread; the addresses of row 0's number, of the weights [s][t], of the strengths; the first new row.
    """
    lines = ["setp.ge.u32 more, $1, 32", "@more bra DONE"]
    lines += [f"ld.shared.f32 x{t}, [$2+{t * COLUMN_BYTES}]" for t in range(CHUNK)] + _load("b", "$4", CHUNK)
    for s in range(CHUNK):
        later = range(s + 1, CHUNK)
        first = (s + 1) // 4 * 4
        lines += [
            f"ld.shared.v4.f32 {{w{t}, w{t + 1}, w{t + 2}, w{t + 3}}}, [$3+{4 * (s * CHUNK + t)}]"
            for t in range(first, CHUNK, 4)
        ]
        lines += [f"mov.f32 u, x{s}", *_settle("u"), f"mul.rn.f32 u, b{s}, u", *_settle("u")]
        lines += [f"setp.gt.s32 small, $5, {s}", f"@small ld.shared.f32 u, [$2+{s * COLUMN_BYTES}]"]
        lines += [f"st.shared.f32 [$2+{s * COLUMN_BYTES}], u"]
        lines += [f"mul.rn.f32 w{t}, w{t}, u" for t in later] + [f"sub.rn.f32 x{t}, x{t}, w{t}" for t in later]
    registers = [".pred more, small", f".f32 x<{CHUNK}>, b<{CHUNK}>, w<{CHUNK}>, u, size"]
    return _text(registers, [*lines, "DONE:", "mov.b32 $0, 0"])


def pair_dots_ptx(key_dim: int, both: bool) -> str:
    """Dot products in head order of row a, and with `both` of row b, with two rows: outputs a0, a1, b0, b1.

    Inputs: addresses of a, b, and the first of the two, which has the other behind it. A turn takes half of K.
    """
    rows = "ab" if both else "a"
    pairs = [f"{x}{n}" for x in rows for n in range(2)]
    first_input = len(pairs)
    quarter_runs = key_dim // 32

    def run(offset: int, to: str) -> list[str]:
        lines = []
        for n, name in enumerate(("a", "b", "y0", "y1")):
            if name in rows or name[0] == "y":
                address, extra = (f"at_{name}", 0) if n < 2 else ("at_y", (n - 2) * PADDED_BYTES)
                lines += _load(f"{name}_", f"{address}+{offset + extra}", 8)
        for i in range(8):
            for pair in pairs:
                x, y = f"{pair[0]}_{i}", f"y{pair[1]}_{i}"
                lines += [f"mul.rn.f32 {'p' if i else to}{pair}, {x}, {y}"]
            lines += [f"add.rn.f32 {to}{pair}, {to}{pair}, p{pair}" for pair in pairs if i]
        return lines

    def subtree(first_run: int, count: int, to: str) -> list[str]:
        """The sums of `count` runs in registers `to`; registers of the right halves are named after their depth."""
        if count == 1:
            return run(32 * first_run, to)
        right = f"r{count}_"
        lines = [*subtree(first_run, count // 2, to), *subtree(first_run + count // 2, count // 2, right)]
        return lines + [f"add.rn.f32 {to}{pair}, {to}{pair}, {right}{pair}" for pair in pairs]

    half = 2 * quarter_runs
    lines = [f"mov.b32 at_{name}, ${first_input + n}" for n, name in enumerate(("a", "b", "y"))]
    lines += ["mov.b32 turn, 0", "AGAIN:", *subtree(0, half, "c"), "setp.ne.u32 more, turn, 0", "@more bra DONE"]
    lines += [f"mov.f32 d{pair}, c{pair}" for pair in pairs]
    lines += [f"add.u32 at_{name}, at_{name}, {32 * half}" for name in "aby"]
    lines += ["mov.b32 turn, 1", "bra AGAIN", "DONE:"]
    lines += [f"add.rn.f32 ${n}, d{pair}, c{pair}" for n, pair in enumerate(pairs)]
    names = ["c", "d", "p", *(f"r{2**n}_" for n in range(1, half.bit_length()))]
    floats = ", ".join(f"{name}{pair}" for name in names for pair in pairs)
    loaded = ", ".join(f"{name}_<8>" for name in (*rows, "y0", "y1"))
    return _text([".b32 at_a, at_b, at_y, turn", ".pred more", f".f32 {floats}", f".f32 {loaded}"], lines)
