"""Drawing tokens for many rows of logits at once, on the device where it has the kernel.

A row's token depends on that row alone. Rows that ask for a bias, penalties or a mask go through a second graph with
dense inputs, so that the others do not pay for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from samebits.backends.discovery import Found
from samebits.backends.interface import Buffer, Executable
from samebits.core.errors import BadInput
from samebits.core.shapes import Sym, TensorSpec
from samebits.core.step import ranges
from samebits.core.tiers import Tier
from samebits.engine.answer import DRAW_WISHES, Answer
from samebits.engine.faults import reason_of
from samebits.engine.plan import compile_plan, make_plan
from samebits.engine.runner import StepResult
from samebits.engine.sampling import SAMPLE, SamplingParams
from samebits.ops.build import OpBuilder

DTYPES = {"i32": np.int32, "f32": np.float32}
ROW_INPUTS = {"position": "i32", **DRAW_WISHES}
PENALTIES = ("repetition", "presence", "frequency")


@dataclass(frozen=True)
class Drawn:
    """Tokens int32 [draws], and a reason for each draw that gave none."""

    tokens: np.ndarray
    failures: dict[int, str]


@dataclass(frozen=True)
class Asked:
    """Draws in order: the row of logits of each, whose it is, and how many draws of that answer come before it."""

    rows: np.ndarray  # int [draws]
    owners: np.ndarray
    inside: np.ndarray
    answers: Sequence[Answer]

    @classmethod
    def of(cls, first_rows: np.ndarray, counts: np.ndarray, answers: Sequence[Answer]) -> Asked:
        """counts[i] draws of each answer, from the row first_rows[i] on."""
        _, owners, inside = ranges(counts)
        return cls(first_rows[owners] + inside, owners, inside, answers)


class Sampler:
    """Draws up to `max_rows` tokens per call, at most `max_shaped` of them with a bias, penalties or a mask."""

    def __init__(self, found: Found, tier: Tier, vocab_size: int, max_rows: int, max_shaped: int) -> None:
        if found.backend is None:
            raise BadInput("sampler", "backend", found.reason, "one that can run")
        self._found, self._backend, self._tier = found, found.backend, tier
        self._vocab_size = vocab_size
        self._max_rows = {False: max_rows, True: max_shaped}  # by is_dense: dense inputs are as wide as the vocabulary
        self._graphs: dict[bool, Executable] = {}
        self.fallbacks: tuple[str, ...] = ()
        for is_dense in (True, False) if self._backend.compiles_kernels else (False,):
            self._graph(is_dense).compile_ahead()  # now, so that a fallback is known before the first token

    def draw(self, result: StepResult, asked: Asked) -> Drawn:
        """A token for each draw from its row of a step's logits. What one of them raises is its failure alone.

        A shaped answer may have one draw only: what is allowed next follows from the token before.
        """
        drawn = Drawn(np.zeros(len(asked.rows), np.int32), {})
        biases: dict[int, np.ndarray] = {}
        is_shaped = np.array([answer.is_shaped for answer in asked.answers], bool)[asked.owners]
        for at in np.flatnonzero(is_shaped).tolist():
            try:
                biases[at] = asked.answers[asked.owners[at]].bias(self._vocab_size)
            except BaseException as error:  # a grammar's
                drawn.failures[at] = reason_of(error)
        for some in (np.flatnonzero(~is_shaped), np.array(list(biases), np.int64)):
            if len(some):
                self._draw_at(some, result, asked, biases, drawn)
        return drawn

    def _draw_at(
        self, at: np.ndarray, result: StepResult, asked: Asked, biases: dict[int, np.ndarray], drawn: Drawn
    ) -> None:
        """Some of the draws, all with a bias or all without; where that fails, one after the other."""
        rows = asked.rows[at]
        whole = len(at) == result.on_device.spec.shape[0] and np.array_equal(rows, np.arange(len(at)))
        try:
            logits = result.on_device if whole else self._buffer(result.logits[rows])
            drawn.tokens[at] = self._run(logits, asked, at, [biases[i] for i in at.tolist() if i in biases])
        except BaseException as error:
            if isinstance(error, BadInput) and error.where != SAMPLE:  # by the model: the whole step is wrong
                raise
            reason = reason_of(error)
            if len(at) == 1:
                drawn.failures[int(at[0])] = reason
            else:
                for i in range(len(at)):
                    self._draw_at(at[i : i + 1], result, asked, biases, drawn)

    def _run(self, logits: Buffer, asked: Asked, at: np.ndarray, biases: Sequence[np.ndarray]) -> np.ndarray:
        graph = self._graph(is_dense=bool(biases))
        graph.bind("logits", logits)
        arrays = self._row_inputs(asked, at, biases)
        if not graph.feed(arrays):
            for name, array in arrays.items():
                graph.bind(name, self._buffer(array))
            graph.prepare({"B": len(at)})
        graph.run()
        return np.asarray(self._backend.result(graph.output(0)))[: len(at)]

    def _buffer(self, array: np.ndarray) -> Buffer:
        return self._backend.adopt(np.ascontiguousarray(array))

    def _row_inputs(self, asked: Asked, at: np.ndarray, biases: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        owned, owners = np.unique(asked.owners[at], return_inverse=True)
        answers = [asked.answers[i] for i in owned.tolist()]
        wishes = np.array([a.draw_wishes for a in answers], np.float64)[owners]  # which holds every one of them
        inputs = {name: wishes[:, i].astype(DTYPES[kind]) for i, (name, kind) in enumerate(DRAW_WISHES.items())}
        inputs["position"] = np.array([a.num_tokens for a in answers], np.int32)[owners] + asked.inside[at]
        inputs["seed"] = np.ascontiguousarray(wishes[:, len(DRAW_WISHES) :], np.uint32)
        if biases:  # of an answer each, in order
            inputs["bias"] = np.stack(biases)
            inputs["counts"] = np.stack([a.counts(self._vocab_size) for a in answers])
            for name in PENALTIES:
                inputs[name] = np.array([getattr(a.params, f"{name}_penalty") for a in answers], np.float32)
        return inputs

    def _graph(self, is_dense: bool) -> Executable:
        if is_dense not in self._graphs:
            b, rows = OpBuilder(), Sym("B", self._max_rows[is_dense])
            wide = (rows, self._vocab_size)
            inputs = {"logits": TensorSpec(wide, "f32"), "seed": TensorSpec((rows, 2), "u32")}
            inputs |= {name: TensorSpec((rows,), kind) for name, kind in ROW_INPUTS.items()}
            if is_dense:
                inputs |= {"bias": TensorSpec(wide, "f32"), "counts": TensorSpec(wide, "i32")}
                inputs |= {name: TensorSpec((rows,), "f32") for name in PENALTIES}
            tokens = b.sample(**{name: b.input(name, spec) for name, spec in inputs.items()})
            plan = make_plan(self._found, b.finish(tokens), self._tier)
            self.fallbacks = plan.placement.reasons
            self._graphs[is_dense] = compile_plan(self._backend, plan)
        return self._graphs[is_dense]


def check_ids(params: SamplingParams, vocab_size: int) -> None:
    """BadInput where a token that does not exist is named."""
    for name in ("logit_bias", "stop_token_ids", "allowed_token_ids"):
        for token in getattr(params, name) or ():
            if not 0 <= token < vocab_size:
                raise BadInput("sampling", name, f"token {token}", f"ids from 0 to {vocab_size - 1}")
