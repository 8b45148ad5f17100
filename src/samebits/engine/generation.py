"""One sequence at a time on a runner: extending it, drawing tokens, stopping where asked."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from samebits.core.errors import BadInput
from samebits.engine.runner import Runner, StepBatch, StepResult
from samebits.engine.sampling import SamplingParams, choose_token, likeliest, log_probabilities
from samebits.loaders import Tokenizer


class Sequence:
    """Tokens whose keys and values are in pages 0, 1, 2, ... of the runner's caches."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self.num_computed = 0

    @property
    def capacity(self) -> int:
        limits = self._runner.limits
        return min(limits.num_pages * limits.page_size, limits.max_positions)

    def extend(self, token_ids: list[int], rows: str = "last") -> Iterator[StepResult]:
        """Computes more tokens in steps of at most max_tokens. `rows`: logits of the "last" token or of "all".

        Yields the result of every step that has logits; BadInput when the cache cannot hold them.
        """
        if self.num_computed + len(token_ids) > self.capacity:
            given = f"{self.num_computed + len(token_ids)} tokens"
            raise BadInput("sequence", "tokens", given, f"at most {self.capacity}, the context and pages at hand")
        chunk_len = self._runner.limits.max_tokens
        for start in range(0, len(token_ids), chunk_len):
            chunk = token_ids[start : start + chunk_len]
            is_last = start + chunk_len >= len(token_ids)
            wanted = np.arange(len(chunk)) if rows == "all" else np.arange(len(chunk) - 1, len(chunk))
            result = self._runner.run(self._batch(chunk, wanted if rows == "all" or is_last else wanted[:0]))
            self.num_computed += len(chunk)
            if len(result.logits):
                yield result

    def _batch(self, chunk: list[int], out_rows: np.ndarray) -> StepBatch:
        start, stop = self.num_computed, self.num_computed + len(chunk)
        page_size = self._runner.limits.page_size
        num_pages = -(-stop // page_size)

        def ints(*values: int) -> np.ndarray:
            return np.array(values, np.int32)

        return StepBatch(
            token_ids=ints(*chunk),
            positions=np.arange(start, stop, dtype=np.int32),
            batch_indices=np.zeros(len(chunk), np.int32),
            qo_indptr=ints(0, len(chunk)),
            kv_indptr=ints(0, num_pages),
            kv_indices=np.arange(num_pages, dtype=np.int32),
            kv_last_page_len=ints(stop - (num_pages - 1) * page_size),
            out_rows=out_rows.astype(np.int32),
        )


@dataclass(frozen=True)
class Piece:
    """What one token added: text that is complete and not held back for a stop string."""

    token_id: int
    text: str
    logprob: float | None = None
    top_logprobs: tuple[tuple[int, float], ...] = ()
    finish_reason: str | None = None  # "stop" or "length", on the last piece


@dataclass(frozen=True)
class Completion:
    """One finished answer."""

    text: str
    token_ids: tuple[int, ...]
    finish_reason: str
    seed: int
    logprobs: tuple[Piece, ...] = ()
    logits_sha256: str | None = None


class StopText:
    """Cuts text at the first stop string, also across tokens, holding back what may become one."""

    def __init__(self, stops: tuple[str, ...]) -> None:
        self._stops, self._held = stops, ""

    def push(self, text: str) -> tuple[str, bool]:
        """(text that is safe to show, whether a stop string was met)."""
        self._held += text
        found = [at for stop in self._stops if (at := self._held.find(stop)) >= 0]
        if found:
            shown, self._held = self._held[: min(found)], ""
            return shown, True
        keep = max((n for s in self._stops for n in range(1, len(s)) if self._held.endswith(s[:n])), default=0)
        shown, self._held = self._held[: len(self._held) - keep], self._held[len(self._held) - keep :]
        return shown, False

    def finish(self) -> str:
        held, self._held = self._held, ""
        return held


class Generation:
    """A seeded answer to one prompt, token by token; iterate it once, then ask for `completion`."""

    def __init__(
        self, runner: Runner, tokenizer: Tokenizer, prompt: list[int], params: SamplingParams, sample_index: int = 0
    ) -> None:
        if not prompt:
            raise BadInput("generate", "prompt", "no tokens", "at least one")
        self._sequence, self._tokenizer = Sequence(runner), tokenizer
        if len(prompt) >= self._sequence.capacity:
            raise BadInput("generate", "prompt", f"{len(prompt)} tokens", f"fewer than {self._sequence.capacity}")
        self._prompt, self._params, self._index = list(prompt), params.with_seed(), sample_index
        self._pieces: list[Piece] = []
        self._digest = hashlib.sha256()

    def __iter__(self) -> Iterator[Piece]:
        params, tokens = self._params, list(self._prompt)
        stream, stops = self._tokenizer.stream(skip_special=True), StopText(params.stop)
        ends = frozenset() if params.ignore_eos else self._tokenizer.special.end_ids
        fresh = tokens
        for count in range(1, params.max_tokens + 1):
            (result,) = self._sequence.extend(fresh)
            logits = result.logits[0]
            self._digest.update(logits.tobytes())
            token = choose_token(logits, params, self._index, tokens)
            text, hit = stops.push("" if token in ends else stream.push(token))
            reason = "stop" if token in ends or hit else None
            if reason is None and (count == params.max_tokens or len(tokens) + 1 >= self._sequence.capacity):
                reason = "length"
            if reason and not hit:
                text += stops.push(stream.finish())[0] + stops.finish()
            piece = self._piece(token, text, logits, reason)
            self._pieces.append(piece)
            yield piece
            if reason:
                return
            tokens.append(token)
            fresh = [token]

    def _piece(self, token: int, text: str, logits: np.ndarray, reason: str | None) -> Piece:
        if self._params.logprobs is None:
            return Piece(token, text, finish_reason=reason)
        log_probs = log_probabilities(logits)
        top = likeliest(log_probs, self._params.logprobs)
        return Piece(token, text, float(log_probs[token]), tuple(top), reason)

    def completion(self) -> Completion:
        """The whole answer; runs what has not been iterated yet."""
        if not self._pieces:
            for _ in self:
                pass
        return Completion(
            text="".join(p.text for p in self._pieces),
            token_ids=tuple(p.token_id for p in self._pieces),
            finish_reason=self._pieces[-1].finish_reason or "length",
            seed=self._params.seed or 0,
            logprobs=tuple(self._pieces) if self._params.logprobs is not None else (),
            logits_sha256=self._digest.hexdigest() if self._params.hash_logits else None,
        )
