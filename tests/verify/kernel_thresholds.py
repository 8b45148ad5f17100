"""Sizes at which kernels change their mind, read from their sources: `num_tokens <= 16` in any language.

A comparison counts if its left side is a name in MEANINGS and its right side a number or a constant of 8 and more. Its
ops are those whose kernels import or include the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import samebits.kernels
from samebits.ops import OPS, Op
from samebits.ops.space import Row

KERNELS = Path(samebits.kernels.__file__).parent
LANGUAGES = {"triton": "py", "cuda": "py", "wgsl": "py", "cpp": "h"}  # where launches choose among kernels
# What a name in kernels means: factors of which the product is the size. The first that an op has all of is taken.
TOKENS = (("T",), ("rows",))
HEAD = (("head",),)
WIDTH = (("K",), ("V",), ("NB",))
MEANINGS: dict[str, tuple[tuple[str, ...], ...]] = {
    **dict.fromkeys(("num_tokens", "codes.shape[0]", "x.shape[0]", "part.tokens", "shape.tokens"), TOKENS),
    **dict.fromkeys(("head_size", "q.shape[2]", "block_d", "largest"), HEAD),
    **dict.fromkeys(("length", "width", "form.K", "key_dim"), (*WIDTH, ("S",))),
    **dict.fromkeys(("u.num_rows", "s.u.num_rows", "p.rows", "place_.rows"), (("group",),)),
    "sizes.stored_width": HEAD,
    "k": (("k",),),
    "num_blocks": (("NB",), ("K",)),
    "num_experts": (("E",), ("groups", "size")),
    "num_pairs": (("T", "R"),),
    "num_rows": (("N",), ("H",)),
    "num_sequences": (("B",),),
    "top_k": (("top_k",),),
}
# Names that are compared with a number and are no size of a call, or one of which a kernel has just one way.
OTHER_NAMES = {
    **dict.fromkeys(
        ("at", "code", "count", "half", "high", "nth", "place", "quad", "row", "thread"), "an index within a tile"
    ),
    **dict.fromkeys(("block_m", "chunks", "cuts", "elements", "rows"), "a tile's size, which follows from other sizes"),
    **dict.fromkeys(("kPairTokens", "kTokenBlockBytes"), "a constant, when it is compiled"),
    "blocks.shape[-1]": "a format's bytes",
    "self.num_rows": "tokens times the group, in a rule of which tokens decide",
    "size": "a head size, beyond which the kernel refuses the call",
    "x.shape[1]": "a width, beyond which a simpler kernel serves; widths go far beyond",
}
LEAST = 8
NAMES = rf"(?:call\.)?({'|'.join(map(re.escape, MEANINGS))})"
NUMBER = r"(1 << \d+|\d+)"
CONSTANT = r"(?:k[A-Z]\w+|[A-Z][A-Z_\d]{2,})"
COMPARISON = re.compile(rf"(?<![*/+%-] )(?<![\w.]){NAMES} ?(<=?|>=?) ?(?:{NUMBER}|({CONSTANT}))\b(?! ?[*\[.(])")
NAME = r"(?:call\.)?([a-z_][\w.]+(?:\[-?\d\])?)"  # of two characters or more: shorter ones count in loops
ANY_COMPARISON = re.compile(rf"(?<![*/+%-] )(?<![\w.]){NAME} (<=?|>=?) (?:{NUMBER}|({CONSTANT}))\b(?! ?[*\[.(])")
DEFINITION = re.compile(rf"\b({CONSTANT})(?:: [\w.]+)? = (?:tl\.constexpr\()?{NUMBER}\b")
IMPORT = re.compile(r"^ *from samebits\.kernels\.([\w.]+) import (.*)$|^#include \"([\w./]+)\"", re.M)


@dataclass(frozen=True)
class Threshold:
    """A size `name` up to `most` takes one way in `file`, a larger one another; `ops` come through there."""

    file: str
    name: str
    most: int
    ops: tuple[str, ...]

    def size(self, op: Op, row: Row) -> int | None:
        """Return the size of a row that is compared; None if the op has no such size."""
        for names in MEANINGS[self.name]:
            if op.space is not None and set(names) <= row.keys():
                product = 1
                for name in names:
                    product *= int(row[name])
                return product // 32 if self.name == "num_blocks" and names == ("K",) else product
        return None


def _value(number: str) -> int:
    one, _, power = number.partition(" << ")
    return int(one) << int(power or 0)


@cache
def _text(file: Path) -> str:
    return file.read_text()


@cache
def _files(language: str) -> list[Path]:
    return sorted((KERNELS / language).rglob(f"*.{LANGUAGES[language]}"))


@cache
def _imported(file: Path) -> frozenset[Path]:
    """Return the kernel files that a file imports or includes, itself among them."""
    found, todo = {file}, [file]
    while todo:
        here = todo.pop()
        for package, names, header in IMPORT.findall(_text(here)):
            if header:
                near = {here.parent / header, KERNELS / "cpp" / header}
            else:
                base = KERNELS / package.replace(".", "/")
                near = {base.with_suffix(".py"), *(base / f"{n}.py" for n in re.findall(r"\w+", names))}
            new = {path for path in near if path.exists()} - found
            found |= new
            todo += new
    return frozenset(found)


def _implemented(file: Path) -> set[str]:
    """Return the ops whose kernels a file registers: `implements("add")`, or `implements(OP)` of a constant."""
    text = _text(file)
    found = set(re.findall(r'implements\(\s*"(\w+)"', text))
    if "implements(OP" in text:
        texts = (text, *(_text(other) for other in sorted(_imported(file)) if other.parent in file.parents))
        near = (re.search(r'^OP = "(\w+)"', other, re.M) for other in texts)
        found |= {stated[1] for stated in near if stated}
    return found & {op.name for op in OPS}


@cache
def ops_of_files() -> dict[Path, tuple[str, ...]]:
    """Return for every kernel file the ops that come through it."""
    found: dict[Path, set[str]] = {}
    for language in LANGUAGES:
        for file in _files(language):
            for name in _cpp_ops(file) if language == "cpp" else _implemented(file):
                for reached in _imported(file):
                    found.setdefault(reached, set()).add(name)
    return {file: tuple(sorted(names)) for file, names in found.items()}


def _cpp_ops(file: Path) -> set[str]:
    """Return the ops whose entry a header defines, by the table in ops/all.h."""
    entries = dict(re.findall(r'\{"(\w+)", (run_\w+)', _text(KERNELS / "cpp/ops/all.h")))
    text = _text(file)
    return {op for op, entry in entries.items() if re.search(rf"(?:void|inline|auto) {entry}\(", text)}


def _constants(text: str) -> dict[str, int]:
    return {name: _value(number) for name, number in DEFINITION.findall(text)}


def _compared(comparison: re.Pattern[str]) -> Iterator[Threshold]:
    """Yield what is compared in all kernels, of every match (name, sign, number, constant)."""
    for language in LANGUAGES:
        shared: dict[str, int] = {}  # of a constant that a file imports
        for file in _files(language):
            shared |= _constants(_text(file))
        for file in _files(language):
            text, ops = _text(file), ops_of_files().get(file, ())
            constants = shared | _constants(text)
            for name, sign, number, constant in comparison.findall(text):
                limit = _value(number) if number else constants.get(constant, 0)
                if ops and limit >= LEAST:
                    most = limit if sign in ("<=", ">") else limit - 1
                    yield Threshold(str(file.relative_to(KERNELS)), name, most, ops)


def thresholds() -> Iterator[Threshold]:
    """Yield the comparisons of sizes in all kernels."""
    return _compared(COMPARISON)


def compared_names() -> dict[str, str]:
    """Return all names that kernels compare with a number of LEAST and more, and a file that does."""
    return {found.name: found.file for found in _compared(ANY_COMPARISON)}
