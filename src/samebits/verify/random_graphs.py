"""Random graphs: values used twice, caches written and read by turns, one op with several attrs, interior outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from samebits.core.numerics.counter import Stream
from samebits.core.shapes import TensorSpec
from samebits.graph import Graph, Value
from samebits.models.parts import ROPE_TABLE
from samebits.ops.build import OpBuilder
from samebits.verify.scenes import LIMITS, NUM_PAGES, PAGE_SIZE, ROW_ORDER, STEP_INPUTS

WIDTH, HEAD, TABLE_ROWS = 64, 32, 48
FIRST_WEIGHTS = ("f32", "q8_0")
WEIGHTS = ("f32", "f16", "bf16", "q8_0", "q4_0", "q5_1")
CACHES = ("f16", "bf16", "q8_0", "q4_0", "f32")
PAGE_TABLE = ("kv_last_page_len", "kv_indptr", "kv_indices")
LEAST_GROWTH, MOST_GROWTH, MOST_DRAWS = 5, 13, 256
T = TypeVar("T")


def random_graph(number: int, seed: int) -> Graph:
    """The graph of a number and a seed, the same on every machine."""
    return Maker(Stream(f"graph/{number}", seed), WEIGHTS).graph()


def random_rows(number: int, seed: int) -> Graph:
    """The same of the ops that a backend has first: sums, products and norms of rows."""
    maker = Maker(Stream(f"rows/{number}", seed), FIRST_WEIGHTS)
    return maker.graph((maker.sums, maker.norms, maker.products, maker.multiples))


def random_chains(number: int, seed: int) -> Graph:
    """Return a graph of ops that threads share out by rows, between them ops that read rows of other threads."""
    m = Maker(Stream(f"chains/{number}", seed), FIRST_WEIGHTS)
    return m.graph((*[m.shuffled] * 4, m.sums, m.norms, m.multiples, m.capped, m.residual, m.columns))


class Maker:
    """Grows a graph of values float32 [T, WIDTH]; one that is written over is not read again."""

    def __init__(self, stream: Stream, formats: Sequence[str]) -> None:
        self._formats = formats
        self._numbers, self._num_weights = iter(stream.integers(0, 1 << 30, (MOST_DRAWS,)).tolist()), 0
        self.b = OpBuilder()
        self.step = {name: self.b.input(name, TensorSpec((dim,), "i32")) for name, dim in STEP_INPUTS.items()}
        rows = TensorSpec((STEP_INPUTS["token_ids"], WIDTH), "f32")
        self.inputs: list[Value] = [self.b.input(name, rows) for name in ("x", "y")]
        self.values = list(self.inputs)
        table = TensorSpec((LIMITS.max_positions, HEAD // 2, 2), "f32")
        self.rope_table = self.b.input(ROPE_TABLE, table, "weight")
        self.caches: tuple[Value, Value] | None = None
        self.order: Value | None = None

    def draw(self, choices: Sequence[T]) -> T:
        return choices[next(self._numbers) % len(choices)]

    def pick(self) -> Value:
        """Any value, the newest ones more often."""
        return self.draw([*self.values, *self.values[-3:], *self.values[-2:]])

    def weight(self, *shape: int, fmt: str = "f32") -> Value:
        self._num_weights += 1
        return self.b.input(f"w{self._num_weights}", TensorSpec(shape, fmt), "weight")

    def graph(self, growers: Sequence[Callable[[], None]] = ()) -> Graph:
        """A graph grown by these methods, all of them where none is named."""
        everything = [self.sums, self.norms, self.products, self.residual, self.columns, self.multiples, self.capped]
        everything += [self.gates, self.rounded, self.turned, self.attended, self.attended, self.gathered]
        growers = growers or everything
        for _ in range(self.draw(range(LEAST_GROWTH, MOST_GROWTH + 1))):
            self.draw(growers)()
        if self.values == self.inputs:
            self.sums()
        made = [v for v in self.values if v not in self.inputs]
        rows = self.b.embedding(made[-1], self.step["out_rows"])
        outputs = dict.fromkeys([rows, made[-1], self.draw(made), self.draw(made), *(self.caches or ())])
        return self.b.finish(*outputs)

    def add(self, value: Value) -> None:
        self.values.append(value)

    def sums(self) -> None:
        self.add(self.b.add(self.pick(), self.pick()))

    def norms(self) -> None:
        """One op twice in a row, with other weights and another eps."""
        first = self.b.rms_norm(self.pick(), self.weight(WIDTH), eps=self.draw((1e-5, 0.5)))
        self.add(first)
        if self.draw((True, False)):
            self.add(self.b.rms_norm(self.draw((first, self.pick())), self.weight(WIDTH), eps=self.draw((1e-6, 2.0))))

    def products(self) -> None:
        y = self.b.gemm(self.pick(), self.weight(WIDTH, WIDTH, fmt=self.draw(self._formats)))
        self.add(self.b.add(y, self.weight(WIDTH)) if self.draw((True, False)) else y)

    def residual(self) -> None:
        """A sum written into the memory of a value that was made here."""
        made = [v for v in self.values if v not in self.inputs]
        if made:
            residual, x = self.draw(made), self.pick()
            if residual is not x:
                self.values.remove(residual)
                self.values += self.b.fused_add_rms_norm(x, residual, self.weight(WIDTH))

    def columns(self) -> None:
        """Columns of two values, cut at an odd place and joined in another order."""
        b, a, cut = self.b, self.pick(), self.draw(range(1, WIDTH))
        parts = (
            b.slice_columns(a, start=0, stop=cut),
            b.slice_columns(self.draw((a, self.pick())), start=cut, stop=WIDTH),
        )
        self.add(b.concat_columns(*parts[:: self.draw((1, -1))]))

    def multiples(self) -> None:
        """One value twice, times other factors."""
        x = self.pick()
        self.values += [self.b.scale(x, factor=self.draw((0.5, -0.75, 0.3, 1.0))) for _ in range(2)]

    def capped(self) -> None:
        self.add(self.b.soft_cap(self.pick(), cap=self.draw((1.0, 30.0))))

    def gates(self) -> None:
        both = self.b.concat_columns(self.pick(), self.pick())
        self.add(self.b.silu_and_mul(both) if self.draw((True, False)) else self.b.gelu_and_mul(both, form="tanh"))

    def rounded(self) -> None:
        self.add(self.b.cast(self.b.cast(self.pick(), format=self.draw(("f16", "bf16"))), format="f32"))

    def turned(self) -> None:
        heads = self.b.split_heads(self.pick(), heads=WIDTH // HEAD)
        turned = self.b.rope(heads, self.step["positions"], self.rope_table, interleave=self.draw((True, False)))
        self.add(self.b.merge_heads(turned))

    def shuffled(self) -> None:
        """Heads that are turned by angles which a node makes, a row for each token, read from the last to the first."""
        if self.order is None:
            self.order = self.b.input(ROW_ORDER, TensorSpec((STEP_INPUTS["token_ids"],), "i32"))
        angles = self.draw((self.pick(), self.b.soft_cap(self.pick(), cap=1.0)))
        table = self.b.split_heads(self.b.slice_columns(angles, start=0, stop=HEAD), heads=HEAD // 2)
        heads = self.b.split_heads(self.pick(), heads=WIDTH // HEAD)
        self.add(self.b.merge_heads(self.b.rope(heads, self.order, table)))

    def gathered(self) -> None:
        """Rows of a table by numbers that a node makes. They come from an input, so that no rounding moves them."""
        start = self.draw(range(WIDTH - TABLE_ROWS + 1))
        ids = self.b.argmax(self.b.slice_columns(self.draw(self.inputs), start=start, stop=start + TABLE_ROWS))
        self.add(self.b.embedding(self.weight(TABLE_ROWS, WIDTH, fmt=self.draw(self._formats)), ids))

    def new_caches(self, k_format: str, v_format: str) -> tuple[Value, Value]:
        """Keys and values of one head, as graph inputs."""
        shape = (NUM_PAGES, PAGE_SIZE, 1, HEAD)
        k = self.b.input("k_cache", TensorSpec(shape, k_format), "cache")
        return k, self.b.input("v_cache", TensorSpec(shape, v_format), "cache")

    def attended(self) -> None:
        """Keys and values into the one cache, over those of earlier nodes, and what attention finds there then."""
        b, table = self.b, {name: self.step[name] for name in PAGE_TABLE}
        if self.caches is None:
            self.caches = self.new_caches(self.draw(CACHES), self.draw(CACHES))
        source = self.pick()
        key, value = (b.split_heads(b.slice_columns(source, start=s, stop=s + HEAD), heads=1) for s in (0, HEAD))
        places = {name: self.step[name] for name in ("batch_indices", "positions")}
        k_cache, v_cache = self.caches
        self.caches = b.append_paged_kv_cache(key, value, k_cache=k_cache, v_cache=v_cache, **places, **table)
        attrs: dict[str, Any] = {
            "v_dim": HEAD,
            "window_left": self.draw((-1, 6)),
            "logits_soft_cap": self.draw((0.0, 9.0)),
        }
        query = b.split_heads(self.pick(), heads=WIDTH // HEAD)
        a = b.paged_attention(query, self.caches[0], self.step["qo_indptr"], v_cache=self.caches[1], **attrs, **table)
        self.add(b.merge_heads(a))
