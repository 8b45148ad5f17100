"""Ranges of the integers in a kernel's Triton IR: which offsets of pointers may leave int32.

Arguments and the grid have the values of one launch; a program's number, what is loaded and a loop's variable are
ranges. A product or sum of int32 that may leave int32 is marked, and told of where it reaches a pointer; what a loop
carries and what is divided is taken for a number that int32 holds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

INT32 = (-(2**31), 2**31 - 1)
RESULTS = re.compile(r"^((?:%[\w.$-]+(?::\d+)?(?:, )?)+) = (.*)$")
VALUE = re.compile(r"%[\w.$-]+(?:#\d+)?")
LOCATION = re.compile(r"\s*loc\(((?:[^()]|\([^()]*\)|\((?:[^()]|\([^()]*\))*\))*)\)\s*$")
SHAPE = re.compile(r"tensor<((?:\d+x)+)")
WIDEN_AFTER = 3  # passes over a loop's body until its variables have any value


@dataclass(frozen=True)
class Range:
    """Whole numbers low .. high.

    wide   where an int32 was computed that may not hold its value, of which this one is made
    any    nothing is known: loaded, or a loop's variable without an end
    base   of a pointer: the argument that it was made of
    """

    low: int
    high: int
    wide: str = ""
    any: bool = False
    base: str = ""


def join(*ranges: Range) -> Range:
    low, high = min(r.low for r in ranges), max(r.high for r in ranges)
    bases = {r.base for r in ranges}
    wide = next((r.wide for r in ranges if r.wide), "")
    return Range(low, high, wide, any(r.any for r in ranges), bases.pop() if len(bases) == 1 else "")


@dataclass
class Node:
    """One operation: names of its results, its text without location, its regions, where it stands."""

    results: list[str]
    text: str
    at: str
    regions: list[list[Node]] = field(default_factory=list)
    tail: str = ""  # what follows the last region


def number_of_bits(kind: str) -> int:
    """The bits of an integer type or of a tensor's elements; 0 for pointers and floats."""
    found = re.search(r"(?:^|x|<)i(\d+)>?$", kind.strip())
    return int(found.group(1)) if found else 0


def whole(bits: int) -> Range:
    """Any number of a type; a pointer or a float is nobody's integer."""
    if bits <= 1:
        return Range(0, 1)
    return Range(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1, any=True)


class Locations:
    """The table of locations at a module's ends."""

    def __init__(self, text: str) -> None:
        self._named = dict(re.findall(r"^(#loc\d*) = loc\((.*)\)$", text, re.MULTILINE))

    def line(self, said: str) -> str:
        """Return "file.py:line" of a location: of the innermost function where one was called."""
        for _ in range(20):
            found = re.search(r'"([^"]+)":(\d+):\d+', said)
            if found:
                return f"{'/'.join(found.group(1).split('/')[-3:])}:{found.group(2)}"
            name = re.search(r"#loc\d*", said)
            if name is None:
                return said
            said = self._named.get(name.group(), "unknown")
        return said


def parsed(text: str) -> Node:
    """Return the kernel function of a module, as a node with one region."""
    locations = Locations(text)
    root = Node([], "root", "")
    stack: list[tuple[Node, list[Node]]] = [(root, [])]
    root.regions.append(stack[0][1])
    for raw in text.splitlines():
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        found = LOCATION.search(line)
        at = locations.line(found.group(1)) if found else ""
        body = line[: found.start()].strip() if found else line
        if body.startswith("^bb"):
            stack[-1][1].append(Node([], body, at))
            continue
        if body.startswith("}"):
            node, _ = stack.pop()
            rest = body.lstrip("}").strip()
            if rest.endswith("{"):  # "else {", "do {", ", {"
                region: list[Node] = []
                node.regions.append(region)
                stack.append((node, region))
            else:
                node.tail, node.at = rest, at or node.at
            continue
        results, operation = [], body
        named = RESULTS.match(body)
        if named:
            operation = named.group(2)
            for part in named.group(1).split(", "):
                name, _, count = part.partition(":")
                results += [f"{name}#{i}" for i in range(int(count))] if count else [name]
        node = Node(results, operation, at)
        stack[-1][1].append(node)
        if body.endswith("{"):
            region = []
            node.regions.append(region)
            stack.append((node, region))
    module = root.regions[0][0]
    return next(node for node in module.regions[0] if node.text.startswith("tt.func public"))


def arguments_of(function: Node) -> list[tuple[str, str]]:
    """Return names and types of a function's arguments."""
    return re.findall(r"(%[\w.$-]+): (!tt\.ptr<\w+>|!tt\.\w+<[^>]*>+|i\d+|f\d+)", function.text.partition("->")[0])


def _divided(x: Range, y: Range) -> tuple[int, int]:
    by = [n for n in (y.low, y.high, -1, 1) if n and y.low <= n <= y.high]
    ends = [abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1) for a in (x.low, x.high) for b in by]
    return (min(*ends, 0) if x.low <= 0 <= x.high else min(ends), max(ends)) if ends else (x.low, x.high)


def _products(x: Range, y: Range) -> tuple[int, int]:
    ends = [a * b for a in (x.low, x.high) for b in (y.low, y.high)]
    return min(ends), max(ends)


def _shifted(x: Range, y: Range) -> tuple[int, int]:
    return _products(x, Range(1 << max(y.low, 0), 1 << min(max(y.high, 0), 63)))


def _remainder(x: Range, y: Range) -> tuple[int, int]:
    most = max(abs(y.low), abs(y.high)) - 1
    return max(min(x.low, 0), -most), min(max(x.high, 0), most)


def _and(x: Range, y: Range) -> tuple[int, int]:
    ends = [r.high for r in (x, y) if r.low >= 0]
    return (0, min(ends)) if ends else (min(x.low, y.low), max(x.high, y.high))


def _or(x: Range, y: Range) -> tuple[int, int]:
    if x.low >= 0 and y.low >= 0:
        return 0, (1 << max(x.high, y.high).bit_length()) - 1
    return min(x.low, y.low), max(x.high, y.high)


def _shifted_down(x: Range, y: Range) -> tuple[int, int]:
    ends = [a >> min(max(s, 0), 63) for a in (x.low, x.high) for s in (y.low, y.high)]
    return min(ends), max(ends)


GROWING: dict[str, Callable[[Range, Range], tuple[int, int]]] = {
    "addi": lambda x, y: (x.low + y.low, x.high + y.high),
    "subi": lambda x, y: (x.low - y.high, x.high - y.low),
    "muli": _products,
    "shli": _shifted,
}
OTHERS: dict[str, Callable[[Range, Range], tuple[int, int]]] = {
    "divsi": _divided,
    "divui": _divided,
    "remsi": _remainder,
    "remui": _remainder,
    "andi": _and,
    "ori": _or,
    "xori": _or,
    "shrsi": _shifted_down,
    "shrui": _shifted_down,
    "minsi": lambda x, y: (min(x.low, y.low), min(x.high, y.high)),
    "maxsi": lambda x, y: (max(x.low, y.low), max(x.high, y.high)),
    "minui": lambda x, y: (0, min(r.high for r in (x, y) if r.high >= 0)),
    "maxui": lambda x, y: (max(x.low, y.low), max(x.high, y.high)),
}
PASSING = (
    "splat",
    "broadcast",
    "expand_dims",
    "reshape",
    "trans",
    "split",
    "join",
    "cat",
    "permute",
    "extsi",
    "bitcast",
)
Environment = dict[str, Range]


class Walk:
    """One kernel with one launch's numbers.

    arguments   values of integers, by name
    grid        programs along x, y and z
    loaded      what integers loaded through a pointer argument are, by its name
    """

    def __init__(
        self, text: str, arguments: dict[str, int], grid: tuple[int, ...], loaded: dict[str, tuple[int, int]]
    ) -> None:
        self._function, self._grid, self._loaded = parsed(text), (*grid, 1, 1)[:3], loaded
        self._arguments = arguments
        self.found: set[str] = set()

    def run(self) -> set[str]:
        """Return lines whose int32 may not hold an offset, each with what is added to a pointer there."""
        env: Environment = {}
        for name, kind in arguments_of(self._function):
            plain = name[1:]
            if kind.startswith("i") and plain in self._arguments:
                env[name] = Range(self._arguments[plain], self._arguments[plain])
            else:
                env[name] = replace(whole(number_of_bits(kind)), base=plain)
        self._block(self._function.regions[0], env, tell=True)
        return self.found

    def _block(self, nodes: list[Node], env: Environment, tell: bool) -> list[Range]:
        """Return what a region's last operation passes on."""
        passed: list[Range] = []
        for node in nodes:
            passed = self._node(node, env, tell)
        return passed

    def _operands(self, text: str, env: Environment) -> list[Range]:
        return [env.get(name, whole(32)) for name in VALUE.findall(text)]

    def _node(self, node: Node, env: Environment, tell: bool) -> list[Range]:
        text = node.text
        name = text.split(" ", 1)[0].strip('"').split("(", 1)[0].strip('"')
        if name in ("scf.yield", "scf.condition", "tt.reduce.return", "tt.scan.return", "tt.return"):
            values = self._operands(text.partition(" : ")[0], env)
            return values[1:] if name == "scf.condition" else values
        if name == "scf.for":
            results = self._for(node, env, tell)
        elif name == "scf.while":
            results = self._while(node, env, tell)
        elif name == "scf.if":
            branches = [self._block(region, dict(env), tell) for region in node.regions]
            results = [join(*values) for values in zip(*branches, strict=False)] if len(branches) == 2 else []
        elif name in ("tt.reduce", "tt.scan"):
            results = self._reduced(node, env)
        else:
            results = self._plain(node, name, env, tell)
        for i, result in enumerate(node.results):
            env[result] = results[i] if i < len(results) else whole(32)
        return []

    def _loop(self, names: list[str], starts: list[Range], body: Callable[[Environment, bool], list[Range]],
              env: Environment, tell: bool) -> list[Range]:  # fmt: skip
        """Return the variables of a loop, as they are at the start of every turn."""
        starts = [replace(start, wide="") for start in starts]
        now = starts
        for turn in range(WIDEN_AFTER + 1):
            inner = dict(env) | dict(zip(names, now, strict=True))
            after = [replace(value, wide="") for value in body(inner, False)]
            grown = [join(a, b) for a, b in zip(starts, after, strict=False)] + starts[len(after) :]
            if all((g.low, g.high, g.base) == (n.low, n.high, n.base) for g, n in zip(grown, now, strict=True)):
                break
            if turn == WIDEN_AFTER - 1:
                grown = [self._widened(g, n) for g, n in zip(grown, now, strict=True)]
            now = grown
        body(dict(env) | dict(zip(names, now, strict=True)), tell)
        return now

    @staticmethod
    def _widened(grown: Range, before: Range) -> Range:
        low = min(INT32[0], 0) if grown.low < min(before.low, 0) else grown.low
        high = INT32[1] if grown.high > before.high else grown.high
        return replace(grown, low=min(low, grown.low), high=max(high, grown.high), any=grown.any or grown != before)

    def _for(self, node: Node, env: Environment, tell: bool) -> list[Range]:
        header = re.match(r"scf\.for (%[\w.$-]+) = (\S+) to (\S+) step (\S+)(?: iter_args\((.*?)\) ->)?", node.text)
        if header is None:
            raise ValueError(node.text)
        first, end, _ = (env.get(header.group(i), whole(32)) for i in (2, 3, 4))
        pairs = re.findall(r"(%[\w.$-]+) = (%[\w.$#-]+)", header.group(5) or "")
        variable = Range(first.low, max(first.low, end.high - 1), first.wide, False)
        names = [name for name, _ in pairs]
        inner = env | {header.group(1): variable}
        starts = [env.get(value, whole(32)) for _, value in pairs]
        return self._loop(names, starts, lambda e, t: self._block(node.regions[0], e, t), inner, tell)

    def _while(self, node: Node, env: Environment, tell: bool) -> list[Range]:
        pairs = re.findall(r"(%[\w.$-]+) = (%[\w.$#-]+)", node.text.partition(") :")[0])
        names, starts = [name for name, _ in pairs], [env.get(value, whole(32)) for _, value in pairs]
        check, body = node.regions

        def turn(inner: Environment, told: bool) -> list[Range]:
            passed = self._block(check, inner, told)
            condition = next(n for n in check if n.text.startswith("scf.condition"))
            sources = VALUE.findall(condition.text.partition(" : ")[0])[1:]
            limits = self._limits(check, VALUE.findall(condition.text)[0], inner)
            block = next(n for n in body if n.text.startswith("^bb"))
            own = [name for name in VALUE.findall(block.text) if "#" not in name]
            for name, source, value in zip(own, sources, passed, strict=False):
                high = min(value.high, limits.get(source, value.high))
                inner[name] = replace(value, high=max(high, value.low), any=value.any and source not in limits)
            return self._block(body, inner, told)

        return self._loop(names, starts, turn, env, tell)

    def _limits(self, nodes: list[Node], condition: str, env: Environment) -> dict[str, int]:
        """Return what values are at most where a condition holds."""
        made = {result: node for node in nodes for result in node.results}
        node = made.get(condition)
        if node is None:
            return {}
        if node.text.startswith("arith.andi"):
            parts = [self._limits(nodes, name, env) for name in VALUE.findall(node.text)]
            return {k: v for part in parts for k, v in part.items()}
        found = re.match(r"arith\.cmpi (slt|sle|ult|ule), (\S+), (\S+) ", node.text)
        if found is None:
            return {}
        return {found.group(2): env.get(found.group(3), whole(32)).high - (found.group(1)[-1] == "t")}

    def _reduced(self, node: Node, env: Environment) -> list[Range]:
        values = self._operands(node.text, env)
        axis = int(re.search(r"axis = (\d+)", node.text).group(1))  # type: ignore[union-attr]
        dims = [int(n) for n in SHAPE.search(node.tail).group(1).split("x") if n]  # type: ignore[union-attr]
        adds = any(inner.text.startswith("arith.addi") for inner in node.regions[0])
        times = dims[axis] if adds else 1
        return [replace(v, low=min(v.low, v.low * times), high=max(v.high, v.high * times)) for v in values]

    def _plain(self, node: Node, name: str, env: Environment, tell: bool) -> list[Range]:
        text, kind = node.text, node.text.rpartition(" : ")[2].rpartition("-> ")[2]
        bits, short = number_of_bits(kind.rpartition(" to ")[2]), name.rpartition(".")[2]
        if name == "arith.constant":
            found = re.match(r"arith\.constant (?:dense<)?(-?\d+|true|false)>? :", text)
            if not found or not bits:
                return [whole(32)]
            value = {"true": 1, "false": 0}.get(found.group(1))
            value = int(found.group(1)) if value is None else value
            return [Range(value, value)]
        if name == "tt.get_program_id":
            return [Range(0, max(0, self._grid["xyz".index(text.split()[1])] - 1))]
        if name == "tt.get_num_programs":
            return [Range(*[self._grid["xyz".index(text.split()[1])]] * 2)]
        if name == "tt.make_range":
            ends = {k: int(v) for k, v in re.findall(r"(start|end) = (\d+)", text)}
            return [Range(ends["start"], ends["end"] - 1)]
        values = self._operands(text.partition(" : ")[0], env)
        if name == "arith.cmpi" or name == "arith.cmpf":
            return [Range(0, 1)]
        if name == "arith.select":
            return [join(*values[1:])]
        if name == "tt.addptr":
            if values[1].wide and tell:
                self.found.add(f"{values[1].wide} (added at {node.at})")
            return [Range(0, 0, base=values[0].base)]
        if name == "tt.load":
            low_high = self._loaded.get(values[0].base)
            return [Range(*low_high) if low_high and bits > 1 else whole(bits or 32)]
        if short in ("extui", "index_cast", "trunci"):
            value = values[0]
            fits = short != "extui" or value.low >= 0
            return [value if fits else Range(0, 2**32 - 1, value.wide, True)]
        if name.startswith(("arith.", "tt.")) and short in PASSING:
            return [join(*values)] * max(1, len(node.results))
        if name.startswith("arith.") and short in GROWING:
            return [self._grown(GROWING[short](*values), values, bits, node, short)]
        if name.startswith("arith.") and short in OTHERS:
            # a quotient or remainder of an int32 is a number of its own: of a page, a tile, a head
            kept = short not in ("divsi", "divui", "remsi", "remui", "andi", "shrsi", "shrui")
            wide = next((v.wide for v in values if v.wide), "") if kept else ""
            return [Range(*OTHERS[short](*values), wide, any(v.any for v in values) and short not in ("remsi", "andi"))]
        return [whole(bits or 32)] * max(1, len(node.results))

    def _grown(self, ends: tuple[int, int], values: list[Range], bits: int, node: Node, short: str) -> Range:
        wide = next((v.wide for v in values if v.wide), "")
        unknown = any(v.any for v in values)
        low, high = ends
        if bits == 32 and (low < INT32[0] or high > INT32[1]):
            if not wide and (short in ("muli", "shli") or not unknown):
                wide = f"{node.at}: {short} up to {high:,}"
            low, high = max(low, INT32[0]), min(high, INT32[1])
            low, high = min(low, high), max(low, high)
        return Range(low, high, wide, unknown)


def wide_offsets(
    text: str, arguments: dict[str, int], grid: tuple[int, ...], loaded: dict[str, tuple[int, int]]
) -> Iterator[str]:
    """Yield the places of a kernel where an int32 may not hold an offset."""
    yield from sorted(Walk(text, arguments, grid, loaded).run())
