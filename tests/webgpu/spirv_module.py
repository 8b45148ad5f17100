"""A SPIR-V binary as functions of instructions, with what following floats needs to know of its values."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

Instruction = tuple[int, tuple[int, ...]]

NAME, EXT_INST, CONSTANT, COMPOSITE, FUNCTION, PARAMETER, END, CALL = 5, 12, 43, 44, 54, 55, 56, 57
VARIABLE, LOAD, STORE, ACCESS, IN_BOUNDS_ACCESS = 59, 61, 62, 65, 66
SHUFFLE, CONSTRUCT, EXTRACT, INSERT, COPY, BITCAST, NEGATE, SELECT, PHI = 79, 80, 81, 82, 83, 124, 127, 169, 245
SUMS, PRODUCTS = (129, 131), (133, 142)  # FAdd, FSub; FMul, VectorTimesScalar
INT_TO_FLOAT, RETURN_VALUE, OR, XOR, AND = (111, 112), 254, 197, 198, 199
UNIFORM = 2  # a storage class
PARAMETERS = "P"  # the uniform buffer of a dispatch's own words
ANYTHING = 0  # no value has this id
BOUNDS = (4, 37, 40, 43, 79, 80, 81)  # abs, min, max, clamp of floats in GLSL.std.450


@dataclass
class Function:
    name: str
    body: list[Instruction] = field(default_factory=list)
    parameters: list[int] = field(default_factory=list)
    variables: set[int] = field(default_factory=set)


def instructions(binary: bytes) -> Iterator[Instruction]:
    """(opcode, operands) of a module, little endian."""
    words = struct.unpack(f"<{len(binary) // 4}I", binary)
    at = 5
    while at < len(words):
        count, opcode = words[at] >> 16, words[at] & 0xFFFF
        yield opcode, words[at + 1 : at + count]
        at += count


def operands_of(opcode: int, operands: tuple[int, ...]) -> tuple[int, ...]:
    """The values among an instruction's operands that its result is made of: no literals, conditions or labels."""
    given = operands[2:]
    if opcode == EXTRACT:
        return given[:1]
    if opcode in (INSERT, SHUFFLE):
        return given[:2]
    if opcode == SELECT:
        return given[1:]
    if opcode == PHI:
        return given[::2]
    return given[2:] if opcode == EXT_INST else given


class Module:
    """A module.

    functions  by id, callees before callers
    constants  id -> its 32 bits
    barriers   values that are the first word of the parameters, and vectors of it
    roots      id of a pointer -> the variable or parameter it points into
    integers   float values that hold integers: converted ones, and what is made of them alone
    """

    def __init__(self, binary: bytes) -> None:
        self._names: dict[int, str] = {}
        self.functions: dict[int, Function] = {}
        self.constants: dict[int, int] = {}
        self.barriers: set[int] = set()
        self.roots: dict[int, int] = {}
        self._composites: dict[int, tuple[int, ...]] = {}  # constant vectors and arrays
        self._first_words: set[int] = set()  # pointers to where the parameters begin
        self._stored: dict[int, list[int]] = {}  # variable -> values
        self._read(binary)
        self.integers = self._find_integers()

    def _read(self, binary: bytes) -> None:
        function = None
        for opcode, operands in instructions(binary):
            if opcode == NAME:
                text = struct.pack(f"<{len(operands) - 1}I", *operands[1:])
                self._names.setdefault(operands[0], text.split(b"\0")[0].decode())
            elif opcode == CONSTANT:
                self.constants[operands[1]] = operands[2]
            elif opcode == COMPOSITE:
                self._composites[operands[1]] = operands[2:]
            elif opcode == FUNCTION:
                function = self.functions[operands[1]] = Function(self._name(operands[1]))
            elif opcode == PARAMETER and function is not None:
                function.parameters.append(operands[1])
            elif function is not None:
                function.body.append((opcode, operands))
                if opcode == VARIABLE:
                    function.variables.add(operands[1])
            self._note_memory(opcode, operands)

    def _note_memory(self, opcode: int, operands: tuple[int, ...]) -> None:
        if opcode == VARIABLE:
            if operands[2] == UNIFORM and self._name(operands[1]) == PARAMETERS:
                self._first_words.add(operands[1])
            self._stored.setdefault(operands[1], []).extend(operands[3:])
        elif opcode in (ACCESS, IN_BOUNDS_ACCESS):
            self.roots[operands[1]] = self.root(operands[2])
            if operands[2] in self._first_words and all(self.constants.get(x) == 0 for x in operands[3:]):
                self._first_words.add(operands[1])
        elif opcode == LOAD:
            self.barriers |= {operands[1]} if operands[2] in self._first_words else set()
        elif opcode == CONSTRUCT:
            self.barriers |= {operands[1]} if self.barriers.issuperset(operands[2:]) else set()
        elif opcode == STORE:
            self._stored.setdefault(self.root(operands[0]), []).append(operands[1])
        elif opcode == CALL:
            for value in operands[3:]:  # through a pointer a callee may store anything
                self._stored.setdefault(self.root(value), []).append(ANYTHING)

    def _name(self, value: int) -> str:
        return self._names.get(value, f"%{value}")

    def root(self, pointer: int) -> int:
        return self.roots.get(pointer, pointer)

    def float_of(self, value: int) -> float:
        """A constant read as a float; NaN for what is none."""
        bits = self.constants.get(value, 0x7FC00000)
        return float(struct.unpack("<f", struct.pack("<I", bits))[0])

    def _find_integers(self) -> set[int]:
        """The largest set of values that agrees with itself, so that a sum in a loop is in it."""
        made = [i for f in self.functions.values() for i in f.body if len(i[1]) > 1]
        known = {x for x in self.constants if (v := self.float_of(x)) == v and math.isfinite(v) and v == int(v)}
        known |= {x for x, parts in self._composites.items() if known.issuperset(parts)}
        known |= {operands[1] for opcode, operands in made if opcode in INT_TO_FLOAT}
        candidates = {o[1]: (op, o) for op, o in made if op in (*SUMS, *PRODUCTS, NEGATE, LOAD, EXT_INST, SELECT, PHI)}
        candidates |= {o[1]: (op, o) for op, o in made if op in (SHUFFLE, CONSTRUCT, EXTRACT, INSERT, COPY)}
        found, before = known | set(candidates), -1
        while len(found) != before:
            before = len(found)
            found -= {x for x, (opcode, operands) in candidates.items() if not self._agrees(found, opcode, operands)}
        return found

    def _agrees(self, found: set[int], opcode: int, operands: tuple[int, ...]) -> bool:
        if opcode == LOAD:
            values = self._stored.get(self.root(operands[2]), [])
        elif opcode == EXT_INST and operands[3] not in BOUNDS:
            return False
        else:
            values = list(operands_of(opcode, operands))
        return bool(values) and all(value in found for value in values)
