"""Random graphs with all that passes look at: more than `samebits verify` draws, which must run on every backend."""

from __future__ import annotations

from samebits.core.numerics.counter import Stream
from samebits.graph import Graph, Value
from samebits.verify.random_graphs import WEIGHTS, WIDTH, Maker

FLOATS = ("f32", "f16", "bf16")
EXPERTS, TOP_K = 4, 2


def wide_graph(seed: int) -> Graph:
    """Return a graph of the seed; odd seeds have float32 activations alone."""
    maker = WideMaker(Stream(f"wide/{seed}", seed), WEIGHTS)
    maker.formats = FLOATS[: 3 if seed % 2 == 0 else 1]
    new = [maker.doubled, maker.taken, maker.narrow, maker.unread, maker.blocks, maker.mixed, maker.constants]
    new += [maker.ones, maker.straight, maker.biased, maker.copied]
    old = [maker.sums, maker.norms, maker.products, maker.residual, maker.columns, maker.multiples, maker.capped]
    old += [maker.gates, maker.turned, maker.attended]
    graph = maker.graph((*new, *new, *old))
    return Graph(graph.inputs, graph.nodes, (*graph.outputs, *maker.more_outputs), graph.kinds, graph.joined)


class WideMaker(Maker):
    """Adds 16-bit values, rows taken in any format, aliases, dead nodes, experts and values made of weights alone."""

    formats: tuple[str, ...]

    def __init__(self, stream: Stream, formats: tuple[str, ...]) -> None:
        super().__init__(stream, formats)
        self.more_outputs: list[Value] = []

    def doubled(self) -> None:
        """A sum of a value with itself before a norm: fused, it would write over what it reads."""
        x = self.b.scale(self.pick(), factor=0.5)
        total = self.b.add(x, self.draw((x, self.pick())))
        self.values += [self.b.rms_norm(total, self.weight(WIDTH)), *self.draw(([total], [total, x], []))]

    def taken(self) -> None:
        """The rows that a step asks for, of a value that nothing else may read, in any format."""
        x = self.narrowed(self.pick())
        for _ in range(self.draw(range(3))):
            x = self.draw((self.product, self.norm, self.halves_swapped))(x)
        self.more_outputs.append(self.b.embedding(x, self.step["out_rows"], format=self.draw(self.formats)))

    def narrow(self) -> None:
        """A few nodes on 16-bit values."""
        x, y = (self.narrowed(value) for value in (self.pick(), self.pick()))
        total = self.b.add(self.norm(x), y) if x.spec == y.spec else self.product(x)
        self.add(self.b.cast(total, format="f32"))

    def unread(self) -> None:
        """Results that nobody reads."""
        self.b.gemm(self.pick(), self.weight(WIDTH, WIDTH, fmt="q8_0"))
        self.b.top_k(self.pick(), k=2)

    def blocks(self) -> None:
        """Products of int8 blocks, as a porter might state them; perhaps one of the two is taken."""
        codes, scales = self.b.quantize_q8(self.pick())
        first, second = (self.b.gemm_q8(codes, scales, self.weight(WIDTH, WIDTH, fmt="q8_0")) for _ in range(2))
        self.more_outputs.append(self.b.embedding(first, self.step["out_rows"]))
        self.draw((self.values, [])).append(second)

    def mixed(self) -> None:
        """A mixture of experts of a token each; the choice itself may be an output."""
        b, x = self.b, self.pick()
        ids, weights = b.route(b.slice_columns(self.inputs[1], start=0, stop=EXPERTS), top_k=TOP_K)
        layout = b.expert_layout(ids, num_experts=EXPERTS)
        rows = b.expert_gemm(x, self.weight(EXPERTS, WIDTH, WIDTH, fmt=self.draw(self._formats)), *layout)
        y = b.combine(rows, weights)
        self.more_outputs += self.draw(([], [ids], [b.embedding(y, self.step["out_rows"])]))
        self.add(y)

    def constants(self) -> None:
        """A product of weights, the rows of which are taken, and a sum of a weight and itself."""
        table = self.b.gemm(self.weight(40, WIDTH), self.weight(WIDTH, WIDTH))
        self.more_outputs.append(self.b.embedding(table, self.step["out_rows"]))
        scale = self.weight(WIDTH)
        self.add(self.b.mul(self.pick(), self.b.add(scale, scale)))

    def ones(self) -> None:
        """What says nothing: a factor of 1, a cast to the same format, all columns, heads split and merged."""
        x, b = self.pick(), self.b
        x = self.draw((b.scale(x, factor=1.0), b.cast(x, format="f32"), b.slice_columns(x, start=0, stop=WIDTH)))
        self.add(b.merge_heads(b.split_heads(x, heads=4)))

    def straight(self) -> None:
        """Two products of one value, perhaps joined, whose results are written over or read together."""
        x = self.pick()
        first, second = (self.b.gemm(x, self.weight(WIDTH, WIDTH, fmt="q4_0")) for _ in range(2))
        if self.draw((True, False)):
            self.values += self.b.fused_add_rms_norm(first, second, self.weight(WIDTH))
        else:
            self.add(self.b.silu_and_mul(self.b.concat_columns(first, second)))

    def biased(self) -> None:
        """Products of one value with biases in other formats, and one without."""
        x = self.pick()
        for fmt in self.draw((("f32", "f32"), ("f32", "f16"), ("bf16", ""))):
            y = self.b.gemm(x, self.weight(WIDTH, WIDTH, fmt="f16"))
            self.add(self.b.add(y, self.weight(WIDTH, fmt=fmt)) if fmt else y)

    def copied(self) -> None:
        """A value under two names, one of which is written over."""
        x = self.b.soft_cap(self.pick(), cap=2.0)
        same = self.draw((self.b.scale(x, factor=1.0), self.b.soft_cap(x, cap=2.0)))
        self.values += self.b.fused_add_rms_norm(self.draw((x, self.pick())), same, self.weight(WIDTH))
        self.add(x)

    def narrowed(self, x: Value) -> Value:
        fmt = self.draw(self.formats)
        return x if fmt == "f32" else self.b.cast(x, format=fmt)

    def norm(self, x: Value) -> Value:
        return self.b.rms_norm(x, self.weight(WIDTH))

    def product(self, x: Value) -> Value:
        return self.b.gemm(x, self.weight(WIDTH, WIDTH, fmt=self.draw(self._formats)))

    def halves_swapped(self, x: Value) -> Value:
        halves = [self.b.slice_columns(x, start=start, stop=start + WIDTH // 2) for start in (WIDTH // 2, 0)]
        return self.b.concat_columns(*halves)
