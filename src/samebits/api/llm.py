"""`LLM`: a model, loaded once, asked many times."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from samebits.backends import discovery
from samebits.core.collector import collector_paused
from samebits.core.errors import BadInput
from samebits.engine.answer import Completion, Piece
from samebits.engine.engine import Engine
from samebits.engine.job import Generation, RequestFailed
from samebits.engine.runner import Runner
from samebits.engine.sampling import SamplingParams
from samebits.engine.text_jobs import Score
from samebits.engine.weights import Progress
from samebits.loaders.cache import DEFAULT_MODEL
from samebits.loaders.obtain import obtain
from samebits.loaders.tokenizer import TextTooLong
from samebits.models.checkpoint import open_checkpoint
from samebits.models.parts import Limits
from samebits.scheduler import Policy

Prompt = str | Sequence[int]
LEAST_PREFILL = 128  # prompt tokens that a step takes beside any number of decodes
CONTEXTS, ENOUGH_TOKENS = 4, 32768  # KV memory where none is stated
__all__ = ["LLM", "Completion", "Piece", "RequestFailed", "SamplingParams", "Score"]


class LLM:
    """A model on a backend.

    model       a short name such as "smollm2", "hf:owner/repo:Q4_K_M", a path to a GGUF file or a Hugging Face folder,
                or an address; what is not here yet is fetched
    backend     a name, or module:Class; if absent, the native CPU backend where it is built, else the reference
    numerics    "fast", "invariant" or "portable"; if absent, the strongest of the last two that every op has here
    threads     host threads that kernels may use; all of them if absent
    context_len the most tokens that a sequence may have; the model's own limit if absent

    For many requests at once:
    max_sequences    requests that run at once; others wait in the queue
    num_pages        pages of KV memory, page_size tokens each; if absent, four contexts, but at most 32,768 tokens or
                     one context
    max_batch_tokens the number of tokens that a step aims at
    prefill_budget   prompt tokens in a step: "dynamic", what decodes leave of max_batch_tokens; a number; or "off"
    share_prefixes   keep pages of prompts for later ones that start the same
    """

    def __init__(
        self,
        model: str | Path = DEFAULT_MODEL,
        *,
        backend: str | None = None,
        numerics: str | None = None,
        threads: int | None = None,
        context_len: int | None = None,
        max_batch_tokens: int = 512,
        prefill_budget: int | str = "dynamic",
        max_sequences: int = 32,
        num_pages: int | None = None,
        page_size: int = 16,
        share_prefixes: bool = True,
        k_format: str = "f16",
        v_format: str = "f16",
        progress: Progress | None = None,
    ) -> None:
        if page_size < 1 or max_batch_tokens < 1 or max_sequences < 1:
            raise BadInput("LLM", "sizes", (page_size, max_batch_tokens, max_sequences), "1 or more each")
        policy = Policy(prefill_budget, max_batch_tokens, min(LEAST_PREFILL, max_batch_tokens))
        with collector_paused():
            checkpoint = open_checkpoint(obtain(model))
            self._template = checkpoint.chat_template()
            longest = checkpoint.config.context_len
            length = min(longest if context_len is None else context_len, longest)
            if length < 1:
                raise BadInput("LLM", "context_len", length, "1 or more")
            enough = max(length, min(min(max_sequences, CONTEXTS) * length, ENOUGH_TOKENS))
            limits = Limits(
                max_tokens=policy.max_step_tokens(max_sequences),
                max_sequences=max_sequences,
                num_pages=num_pages or -(-enough // page_size) + 1,
                page_size=page_size,
                max_positions=length,
                k_format=k_format,
                v_format=v_format,
            )
            found = discovery.get(backend or discovery.default_name())
            # before anything that stays, so that the memory it used is given back whole
            self.tokenizer = checkpoint.tokenizer()
            self.runner = Runner(checkpoint, found, limits, numerics, progress, threads)
        self.numerics = self.runner.tier.label
        del checkpoint  # with its metadata, a vocabulary of text
        self.engine = Engine(self.runner, self.tokenizer, policy, shares_prefixes=share_prefixes)
        self.runner.backend.trim()

    def generate(self, prompts: Prompt | Sequence[Prompt], params: SamplingParams | None = None) -> list[Completion]:
        """`params.n` answers to each prompt, in order. A prompt is a text or token ids."""
        params = (params or SamplingParams()).with_seed()
        ids = [self._ids(prompt) for prompt in _as_list(prompts)]
        jobs: list[Generation] = []
        try:
            for prompt in ids:
                jobs.append(self.engine.generate(prompt, params))
        except BadInput:  # in one of the prompts: none is run
            for job in jobs:
                self.engine.cancel(job)
            raise
        self.engine.complete(*jobs)
        return [answer for job in jobs for answer in job.completions()]

    def stream(self, prompt: Prompt, params: SamplingParams | None = None) -> Iterator[Piece]:
        """One answer as it comes."""
        job = self.engine.generate(self._ids(prompt), replace(params or SamplingParams(), n=1))
        try:
            while not job.is_done or job.events:
                while not job.events:
                    self.engine.step()
                yield job.events.popleft()[1]
            job.check()
        finally:
            self.engine.cancel(job)

    def encode(self, text: str, add_special: bool = True) -> list[int]:
        """A prompt's token ids; TextTooLong, before any work where possible, for more than the context holds."""
        return self.tokenizer.encode(text, add_special, max_tokens=self.engine.max_len)

    def chat_prompt(
        self,
        messages: Sequence[Mapping[str, Any]],
        now: datetime | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> list[int]:
        """Messages through the model's own template, as token ids; BadInput if it has none, TextTooLong as `encode`.

        now         the time for templates that print it; the current time if absent
        variables   of the template's own, such as `reasoning_effort`; BadInput for one that it does not name
        """
        if self._template is None:
            raise BadInput("chat", "model", "no chat template", "a model that carries one")
        for name, value in (variables or {}).items():
            if not self._template.names(name):
                raise BadInput("chat", name, repr(value), "nothing: the model's chat template does not name it")
        num_chars = sum(len(part) for message in messages for part in message.values() if isinstance(part, str))
        max_bytes, reason = self.tokenizer.max_bytes(self.engine.max_len)
        if num_chars > max_bytes:
            raise TextTooLong("chat", "messages", f"{num_chars} characters", f"at most {max_bytes}{reason}")
        special = self.tokenizer.special
        text = self._template.render(
            messages,
            bos_token=self.tokenizer.token_text(special.bos),
            eos_token=self.tokenizer.token_text(special.eos),
            variables=variables,
            now=now,
        )
        return self.encode(text, add_special=False)

    def chat(self, messages: Sequence[Mapping[str, Any]], params: SamplingParams | None = None) -> Completion:
        """The model's answer to a conversation."""
        return self.generate([self.chat_prompt(messages)], params)[0]

    def score(self, text: Prompt, *, top_k: int = 0, logits: bool = False) -> Score:
        """Log-likelihood of a text or of token ids, position by position."""
        job = self.engine.score(self._ids(text), top_k=top_k, keep_logits=logits)
        self.engine.complete(job)
        return job.score()

    def embed(self, text: Prompt, pooling: str = "mean") -> np.ndarray:
        """float32 [hidden] of length 1: the mean of the text's last hidden states, or the "last" one."""
        job = self.engine.embed(self._ids(text), pooling)
        self.engine.complete(job)
        return job.vector()

    def _ids(self, prompt: Prompt) -> list[int]:
        if isinstance(prompt, str):
            return self.encode(prompt)
        ids = [int(i) for i in prompt]
        num_ids = self.tokenizer.num_ids
        wrong = next((i for i in ids if not 0 <= i < num_ids), None)
        if wrong is not None:
            raise BadInput("prompt", "token id", wrong, f"0 .. {num_ids - 1}")
        return ids


def _as_list(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    """One prompt or several: a text or a flat list of ids is one."""
    if isinstance(prompts, str) or (len(prompts) > 0 and isinstance(prompts[0], int)):
        return [prompts]  # type: ignore[list-item]
    return list(prompts)  # type: ignore[arg-type]
