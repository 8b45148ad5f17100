"""PTX of the two products of this folder's kernel: a thread's tile, operands from shared memory.

Queries, keys and values lie there in 16 bits, in pieces of 8 elements; weights (P) as float32. Products are exact, so a
chain of fma.rn is the chain of docs/numerics.md. Loops are short: what does not fit the first instruction cache (some
700 instructions) runs at half speed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

QUERIES, KEYS = 8, 4  # a thread's tile of scores
ROW_BYTES = 256  # of a query, a key, a value, and of the weights of one position
KEY_STEP = 8  # rows between a thread's keys
TURN = 8  # positions of values in a turn of the loop


def _widened(word: str, low: str, high: str, kind: str) -> list[str]:
    """Two 16-bit numbers of a word as float32."""
    if kind == "bf16":
        return [f"shl.b32 {low}, {word}, 16", f"and.b32 {high}, {word}, 0xffff0000"]
    return [f"mov.b32 {{h0, h1}}, {word}", f"cvt.f32.f16 {low}, h0", f"cvt.f32.f16 {high}, h1"]


def _piece(address: str, offset: int, kind: str, to: str) -> list[str]:
    """Eight numbers as {to}0 .. {to}7."""
    lines = [f"ld.shared.v4.b32 {{w0, w1, w2, w3}}, [{address}+{offset}]"]
    for n in range(4):
        lines += _widened(f"w{n}", f"{to}{2 * n}", f"{to}{2 * n + 1}", kind)
    return lines


def _text(registers: Iterable[str], lines: Iterable[str]) -> str:
    """A block of statements; a line that ends in a colon is a label."""
    body = "\n".join(line if line.endswith(":") else f"{line};" for line in lines)
    return "{ " + " ".join(f".reg {names};" for names in registers) + "\n" + body + " }"


def _run_of_scores(to: str, kind: str) -> list[str]:
    """{to}{i}_{j} = the chains over the 8 elements of the pieces at qa and ka."""
    lines = []
    for j in range(KEYS):
        lines += _piece("ka", j * KEY_STEP * ROW_BYTES, kind, f"k{j}_")
    for i in range(QUERIES):
        lines += _piece("qa", i * ROW_BYTES, kind, "q")
        for d in range(8):
            for j in range(KEYS):
                c = f"{to}{i}_{j}"
                lines.append(f"fma.rn.f32 {c}, q{d}, k{j}_{d}, {c if d else '0f00000000'}")
    return lines


def scores_ptx(runs: int, kind: str) -> str:
    """Outputs 0-31: scores [QUERIES, KEYS] in head order; inputs: addresses of the thread's first query and first key.

    A piece's place in its row is its number xor bits 4-7 of that address. A turn of the loop takes two runs; a finished
    left subtree of 2, 4 or 8 runs waits in s2, s4, s8. Runs beyond the last are zeros: they leave any sum as it is.
    """
    tile = [f"{i}_{j}" for i in range(QUERIES) for j in range(KEYS)]
    turns = (runs + 1) // 2
    levels = turns.bit_length()  # subtrees of 2 .. 2 ** levels runs are finished

    def add(to: str, left: str, right: str) -> list[str]:
        return [f"add.rn.f32 {to}{t}, {left}{t}, {right}{t}" for t in tile]

    lines = ["mov.b32 turn, 0", "AGAIN:", "shl.b32 place, turn, 5"]
    for half, to in enumerate("ce"):
        for a, given in (("qa", len(tile)), ("ka", len(tile) + 1)):
            lines += [f"xor.b32 {a}, ${given}, place"]
            lines += [f"xor.b32 {a}, {a}, 16"] if half else []
        lines += _run_of_scores(to, kind)
    left = "c"
    for level in range(1, levels):
        lines += [f"and.b32 place, turn, {2 ** (level - 1)}", "setp.ne.u32 more, place, 0", f"@more bra LEVEL{level}"]
        lines += [*add(f"s{2**level}_", left, "e"), "bra NEXT", f"LEVEL{level}:", *add("e", left, "e")]
        left = f"s{2**level}_"
    lines += add(f"s{2**levels}_", left, "e")
    # The whole tree leaves from here, so that it needs no registers beside its parts.
    lines += (
        ["bra DONE", "NEXT:", "add.u32 turn, turn, 1", "bra AGAIN", "DONE:"]
        if turns == 2 ** (levels - 1)
        else ["NEXT:", "add.u32 turn, turn, 1", f"setp.lt.u32 more, turn, {turns}", "@more bra AGAIN"]
    )
    waiting = [f"s{2 ** (level + 1)}_" for level in range(levels) if turns >> level & 1]
    for smaller, larger in itertools.pairwise(waiting):
        lines += add(larger, larger, smaller)
    lines += [f"mov.f32 ${n}, {waiting[-1]}{t}" for n, t in enumerate(tile)]
    registers = [".b16 h0, h1", ".b32 w<4>, qa, ka, place, turn", ".f32 q<8>", ".pred more"]
    registers += [f".f32 k{j}_<8>" for j in range(KEYS)]
    registers += [f".f32 {name}{t}" for name in ("c", "e", *(f"s{2 ** (n + 1)}_" for n in range(levels))) for t in tile]
    return _text(registers, lines)


def values_ptx(rows: int, kind: str) -> str:
    """Outputs: sums [rows, 8 columns] plus the runs of 16 positions, in order; inputs: the sums, the addresses of the
    thread's first weight and first value, the number of runs."""
    tile = [f"{i}_{n}" for i in range(rows) for n in range(8)]
    base = len(tile)
    lines = [f"mov.f32 t{t}, ${base + n}" for n, t in enumerate(tile)]
    lines += [f"mov.b32 pa, ${2 * base}", f"mov.b32 va, ${2 * base + 1}", f"shl.b32 end, ${2 * base + 2}, 12"]
    lines += ["add.u32 end, end, pa", "RUN:"] + [f"mov.f32 c{t}, 0f00000000" for t in tile] + ["TURN:"]
    for n in range(TURN):
        for i in range(0, rows, 4):
            lines.append(f"ld.shared.v4.f32 {{p{i}, p{i + 1}, p{i + 2}, p{i + 3}}}, [pa+{n * ROW_BYTES + 4 * i}]")
        lines += _piece("va", n * ROW_BYTES, kind, "v")
        lines += [f"fma.rn.f32 c{i}_{c}, p{i}, v{c}, c{i}_{c}" for i in range(rows) for c in range(8)]
    lines += [f"add.u32 pa, pa, {TURN * ROW_BYTES}", f"add.u32 va, va, {TURN * ROW_BYTES}"]
    lines += ["sub.u32 left, end, pa", "and.b32 left, left, 4095", "setp.ne.u32 more, left, 0", "@more bra TURN"]
    lines += [f"add.rn.f32 t{t}, t{t}, c{t}" for t in tile]
    lines += ["setp.ne.u32 more, pa, end", "@more bra RUN"]
    lines += [f"mov.f32 ${n}, t{t}" for n, t in enumerate(tile)]
    registers = [".b16 h0, h1", ".b32 w<4>, pa, va, end, left", ".pred more", f".f32 v<8>, p<{rows}>"]
    return _text(registers + [f".f32 c{t}, t{t}" for t in tile], lines)
