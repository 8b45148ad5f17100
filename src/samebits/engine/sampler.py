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
from samebits.core.numerics.counter import split_seed
from samebits.core.shapes import Sym, TensorSpec
from samebits.core.tiers import Tier
from samebits.engine.answer import Answer
from samebits.engine.plan import compile_plan, make_plan
from samebits.engine.runner import StepResult
from samebits.engine.sampling import SamplingParams
from samebits.ops.build import OpBuilder

ROW_INPUTS = {"sample_index": "i32", "position": "i32", "temperature": "f32", "top_k": "i32", "top_p": "f32"}
ROW_INPUTS |= {"min_p": "f32"}
PENALTIES = ("repetition", "presence", "frequency")
SAMPLE = "sample"  # what the op's refusals begin with


@dataclass(frozen=True)
class Drawn:
    """Tokens int32 [rows], and a reason for each row that gave none."""

    tokens: np.ndarray
    failures: dict[int, str]


def is_shaped(answer: Answer) -> bool:
    """Whether the logits are changed before the draw."""
    return bool(answer.params.logit_bias or answer.params.has_penalties or answer.mask)


class Sampler:
    """Draws for up to `max_rows` answers a call."""

    def __init__(self, found: Found, tier: Tier, vocab_size: int, max_rows: int) -> None:
        if found.backend is None:
            raise BadInput("sampler", "backend", found.reason, "one that can run")
        self._found, self._backend, self._tier = found, found.backend, tier
        self._vocab_size, self._max_rows = vocab_size, max_rows
        self._graphs: dict[bool, Executable] = {}
        self.fallbacks: tuple[str, ...] = ()
        self._graph(is_dense=False)  # now, so that a fallback is known before the first token

    def draw(self, result: StepResult, rows: np.ndarray, answers: Sequence[Answer]) -> Drawn:
        """A token for each answer from its row of a step's logits."""
        tokens, failures = np.zeros(len(answers), np.int32), {}
        shaped = np.array([is_shaped(a) for a in answers], bool)
        for is_dense in (False, True):
            at = np.flatnonzero(shaped == is_dense)
            if not len(at):
                continue
            whole = len(at) == result.on_device.spec.shape[0] and np.array_equal(rows[at], np.arange(len(at)))
            chosen = [answers[i] for i in at.tolist()]
            try:
                tokens[at] = self._run(result.on_device if whole else result.logits[rows[at]], chosen, is_dense)
            except BadInput as error:
                if error.where != SAMPLE:  # by the model
                    raise
                for i in at.tolist():  # by some row: the others shall not suffer
                    try:
                        tokens[i] = self._run(result.logits[rows[i : i + 1]], [answers[i]], is_dense)[0]
                    except BadInput as error:
                        failures[i] = str(error)
        return Drawn(tokens, failures)

    def _run(self, logits: Buffer | np.ndarray, answers: Sequence[Answer], is_dense: bool) -> np.ndarray:
        graph = self._graph(is_dense)
        graph.bind("logits", self._buffer(logits) if isinstance(logits, np.ndarray) else logits)
        arrays = self._row_inputs(answers, is_dense)
        if not graph.feed(arrays):
            for name, array in arrays.items():
                graph.bind(name, self._buffer(array))
            graph.prepare({"B": len(answers)})
        graph.run()
        self._backend.sync()
        return np.array(self._backend.copy_out(graph.output(0)))[: len(answers)]

    def _buffer(self, array: np.ndarray) -> Buffer:
        return self._backend.adopt(np.ascontiguousarray(array))

    def _row_inputs(self, answers: Sequence[Answer], is_dense: bool) -> dict[str, np.ndarray]:
        columns: dict[str, list[float]] = {
            "sample_index": [a.sample_index for a in answers],
            "position": [a.num_tokens for a in answers],
            **{name: [getattr(a.params, name) for a in answers] for name in ("temperature", "top_k", "top_p", "min_p")},
        }
        dtypes = {"i32": np.int32, "f32": np.float32}
        inputs = {name: np.array(columns[name], dtypes[kind]) for name, kind in ROW_INPUTS.items()}
        inputs["seed"] = np.array([split_seed(np.uint64(a.params.seed or 0)) for a in answers], np.uint32).reshape(
            -1, 2
        )
        if is_dense:
            inputs["bias"] = np.stack([self._bias(a) for a in answers])
            inputs["counts"] = np.stack([a.counts(self._vocab_size) for a in answers])
            for name in PENALTIES:
                inputs[name] = np.array([getattr(a.params, f"{name}_penalty") for a in answers], np.float32)
        return inputs

    def _bias(self, answer: Answer) -> np.ndarray:
        """float32 [vocab]: the request's bias, -Inf where the grammar allows no token."""
        bias = np.zeros(self._vocab_size, np.float32)
        for token, value in answer.params.logit_bias.items():
            bias[token] = value
        if answer.mask:
            bias[~answer.mask.allowed()] = -np.inf
        return bias

    def _graph(self, is_dense: bool) -> Executable:
        if is_dense not in self._graphs:
            b, rows = OpBuilder(), Sym("B", self._max_rows)
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


def check_bias(params: SamplingParams, vocab_size: int) -> None:
    """BadInput for a bias on a token that does not exist."""
    for token in params.logit_bias:
        if not 0 <= token < vocab_size:
            raise BadInput("sampling", "logit_bias", f"token {token}", f"0 .. {vocab_size - 1}")
