"""Where a compiler could contract or reorder the float arithmetic of a SPIR-V module: found by following values.

A float sum or product is raw until it has passed the rounding barrier, an exclusive or of its bits with the first word
of the parameters. A raw value that reaches another sum or product is a finding: whoever compiles the module may fuse
the two, or reorder them. Casts, selections, vectors, variables and calls pass raw values on.

Not raw is what no rounding can change: sums and products of integers that were converted, which shaders keep below
2^24, products with a power of two, and what a shader says of itself with the functions `exact` and `exact4`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from spirv_module import (
    AND,
    BITCAST,
    BOUNDS,
    CALL,
    CONSTRUCT,
    COPY,
    EXT_INST,
    EXTRACT,
    INSERT,
    LOAD,
    NEGATE,
    OR,
    PHI,
    PRODUCTS,
    RETURN_VALUE,
    SELECT,
    SHUFFLE,
    STORE,
    SUMS,
    XOR,
    Function,
    Module,
    operands_of,
)

RAW = -1  # beside numbers of parameters, in the set of what a value may carry
Carried = frozenset[int]
CLEAN: Carried = frozenset()
PASSING = (SHUFFLE, CONSTRUCT, EXTRACT, INSERT, COPY, BITCAST, NEGATE, SELECT, PHI)
TRUSTED = ("exact", "exact4")
SIGN_BITS = (0x7FFFFFFF, 0x80000000)  # what compilers see through: abs and negation by bits
FORBIDDEN = {115: "OpFConvert", 116: "OpQuantizeToF16", 136: "OpFDiv", 140: "OpFRem", 141: "OpFMod"}
FORBIDDEN |= dict.fromkeys(range(143, 149), "OpDot or a product of matrices")
# of GLSL.std.450: rounding to integers, abs, sign, min, max, clamp, places of bits; all of them exact
ALLOWED_BUILTINS = {*range(1, 10), *range(37, 46), 73, 74, 75, 79, 80, 81}


@dataclass
class Summary:
    """What callers need to know of a function, by numbers of parameters."""

    consumed: set[int] = field(default_factory=set)  # those that reach a sum or product
    returned: Carried = CLEAN
    written: dict[int, Carried] = field(default_factory=dict)  # into memory that outlives a call, by variable


def findings(binary: bytes) -> list[str]:
    """One line for every place; none is what a portable shader must have."""
    return Following(Module(binary)).findings()


class Following:
    """What the values of a module carry."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._carried: dict[int, Carried] = {}
        self._summaries = {number: Summary() for number in module.functions}
        self._found: list[str] = []

    def findings(self) -> list[str]:
        before = None
        while before != (now := repr((self._carried, self._summaries))):  # variables may carry more after a round
            before, self._found = now, []
            for number, function in self._module.functions.items():
                self._carried |= {p: frozenset({i}) for i, p in enumerate(function.parameters)}
                for opcode, operands in function.body:
                    self._step(function, self._summaries[number], opcode, operands)
        return list(dict.fromkeys(self._found))

    def _of(self, *values: int) -> Carried:
        return CLEAN.union(*(self._carried.get(value, CLEAN) for value in values))

    def _add(self, value: int, carried: Carried) -> None:
        self._carried[value] = self._of(value) | carried

    def _step(self, function: Function, summary: Summary, opcode: int, operands: tuple[int, ...]) -> None:
        if opcode in FORBIDDEN:
            self._found.append(f"{function.name}: {FORBIDDEN[opcode]}")
        elif opcode in (*SUMS, *PRODUCTS):
            self._arithmetic(function, summary, opcode, operands)
        elif opcode in PASSING:
            self._add(operands[1], self._of(*operands_of(opcode, operands)))
        elif opcode in (AND, OR, XOR):
            if self._is_seen_through(opcode, operands[2:]):
                self._add(operands[1], self._of(*operands[2:]))
        elif opcode == EXT_INST:
            if operands[3] not in ALLOWED_BUILTINS:
                self._found.append(f"{function.name}: builtin {operands[3]} of GLSL.std.450")
            if operands[3] in BOUNDS:
                self._add(operands[1], self._of(*operands[4:]))
        elif opcode == LOAD:
            self._add(operands[1], self._of(self._module.root(operands[2])))
        elif opcode == STORE:
            self._store(function, summary, self._module.root(operands[0]), self._of(operands[1]))
        elif opcode == CALL:
            self._call(function, summary, operands)
        elif opcode == RETURN_VALUE and function.name not in TRUSTED:
            summary.returned |= self._of(operands[0])

    def _is_seen_through(self, opcode: int, given: tuple[int, ...]) -> bool:
        """Whether bits that pass are still the float that a compiler knows."""
        if opcode == XOR and self._module.barriers & set(given):
            return False
        constants = [self._module.constants[x] for x in given if x in self._module.constants]
        return opcode == XOR or any(bits in SIGN_BITS for bits in constants)

    def _arithmetic(self, function: Function, summary: Summary, opcode: int, operands: tuple[int, ...]) -> None:
        result, given = operands[1], operands[2:]
        if result in self._module.integers:
            return
        if opcode in PRODUCTS and any(abs(math.frexp(self._module.float_of(x))[0]) == 0.5 for x in given):
            self._add(result, self._of(*given))
            return
        self._consume(function, summary, "a product" if opcode in PRODUCTS else "a sum", self._of(*given))
        self._add(result, frozenset({RAW}))

    def _consume(self, function: Function, summary: Summary, what: str, carried: Carried) -> None:
        if RAW in carried:
            self._found.append(f"{function.name}: {what} takes a sum or product that did not pass the barrier")
        summary.consumed |= carried - {RAW}

    def _store(self, function: Function, summary: Summary, root: int, carried: Carried) -> None:
        is_own = root in function.variables
        self._add(root, carried if is_own else carried & {RAW})  # numbers of parameters mean nothing elsewhere
        if not is_own:
            summary.written[root] = summary.written.get(root, CLEAN) | carried

    def _call(self, function: Function, summary: Summary, operands: tuple[int, ...]) -> None:
        called, callee, given = self._module.functions[operands[2]], self._summaries[operands[2]], operands[3:]
        places = dict(zip(called.parameters, given, strict=True))

        def here(carried: Carried) -> Carried:
            """What a callee's set means at this call."""
            own = (self._of(self._module.root(given[n]), given[n]) for n in carried if n != RAW)
            return (carried & {RAW}).union(*own)

        for number in callee.consumed:
            self._consume(function, summary, f"{called.name}()", here(frozenset({number})))
        for root, carried in callee.written.items():
            self._store(function, summary, self._module.root(places.get(root, root)), here(carried))
        self._add(operands[1], here(callee.returned))
