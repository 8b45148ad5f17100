"""How many instructions the hot loops of aarch64's instruction sets have: `python benchmarks/arm_loops.py`.

Compiles two sets as a build does, disassembles them, and counts the innermost loops that hold multiply-adds. A line is
a kernel, the instruction that does the products, and for each loop the products of one turn and the instructions for
512 of them: a block of 16 rows for one token. It says nothing of speed. Needs Debian's g++-aarch64-linux-gnu, and takes
minutes.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

CPP = Path(__file__).parent.parent / "src" / "samebits" / "kernels" / "cpp"
TOOLS = "aarch64-linux-gnu-"
FLAGS = ["-std=c++17", "-ffp-contract=off", "-fno-fast-math", "-O2", "-w", "-fPIC", "-fno-stack-protector"]
REGISTER_BYTES = {"neon_i8mm": 16, "sve256": 32}
PRODUCTS_PER_BYTE = {"sdot": 1, "smmla": 2, "fmla": 1 / 4}
KERNELS = {
    "product with Q4_0": ("multiply_blocks_as<Q4_0>", ("sdot", "smmla")),
    "product with Q4_K": ("multiply_blocks_as<Q4_K>", ("sdot", "smmla")),
    "attention, keys in q8_0": ("direct_scores<attention::KeysQ8>", ("sdot",)),
    "attention, values in f16": ("Values16<attention::StoredF16>::direct_columns<4", ("fmla",)),
}
BRANCH = re.compile(r"(?:b|b\.\w+|cbn?z|tbn?z)\s(?:.*,\s)?([0-9a-f]+) <")

Line = tuple[int, str]  # address, instruction


def compile_set(isa: str, folder: Path) -> Path:
    """The object file of a set."""
    source, target = CPP / "isa" / f"{isa}.cpp", folder / f"{isa}.o"
    stated = " ".join(re.findall(r"^// flags: (.*)$", source.read_text(), re.MULTILINE)).split()
    subprocess.run([f"{TOOLS}g++", *FLAGS, *stated, "-c", str(source), "-o", str(target)], check=True)
    return target


def functions(isa: str, compiled: Path) -> Iterator[tuple[str, list[Line]]]:
    """Every function's name, without the set's namespace, and its instructions."""
    command = [f"{TOOLS}objdump", "-dC", "--no-show-raw-insn", str(compiled)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for part in re.split(r"^[0-9a-f]+ <", text, flags=re.MULTILINE)[1:]:
        name, _, body = part.partition(">:\n")
        lines = re.findall(r"^\s+([0-9a-f]+):\s+(.*)$", body, re.MULTILINE)
        yield name.replace(f"samebits::{isa}::", ""), [(int(address, 16), line) for address, line in lines]


def innermost_loops(lines: list[Line]) -> list[list[str]]:
    """The instructions' names of every loop without another in it: from where a branch goes back to, to the branch."""
    place = {address: i for i, (address, _) in enumerate(lines)}
    found = {(place.get(int(m[1], 16), i + 1), i) for i, (_, line) in enumerate(lines) if (m := BRANCH.match(line))}
    loops = {(first, last) for first, last in found if first <= last}
    inner = [a for a in loops if not any(b != a and a[0] <= b[0] and b[1] <= a[1] for b in loops)]
    return [[line.split()[0] for _, line in lines[first : last + 1]] for first, last in sorted(inner)]


def counts(isa: str, function: str, product: str, code: list[tuple[str, list[Line]]]) -> list[tuple[int, float]]:
    """Of each loop, the products of one turn, and the instructions for 512 of them."""
    each = REGISTER_BYTES[isa] * PRODUCTS_PER_BYTE[product]
    loops = [loop for name, lines in code if function in name for loop in innermost_loops(lines) if product in loop]
    amounts = [(int(loop.count(product) * each), len(loop)) for loop in loops]
    # products are most of these loops; where they are a few of many instructions, it is another loop
    return sorted({(n, 512 * size / n) for n, size in amounts if size < n / each * 8})


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        code = {isa: list(functions(isa, compile_set(isa, Path(folder)))) for isa in REGISTER_BYTES}
    for label, (function, products) in KERNELS.items():
        for product in products:
            for isa in REGISTER_BYTES:
                found = ", ".join(f"{n}: {size:.0f}" for n, size in counts(isa, function, product, code[isa]))
                print(f"{label:26} {product:6} {isa:10} {found}")


if __name__ == "__main__":
    main()
