"""`LLM`: a model, loaded once, asked many times."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from samebits.backends import discovery
from samebits.core.errors import BadInput
from samebits.engine.generation import Completion, Generation, Piece
from samebits.engine.runner import Runner
from samebits.engine.sampling import SamplingParams
from samebits.engine.scoring import Score, score
from samebits.engine.weights import Progress
from samebits.loaders import open_checkpoint
from samebits.loaders.cache import DEFAULT_MODEL, resolve
from samebits.models.parts import Limits

Prompt = str | Sequence[int]
__all__ = ["LLM", "Completion", "Piece", "SamplingParams", "Score"]


class LLM:
    """A model on a backend.

    model       "smollm2", a path to a GGUF file or a Hugging Face folder, or an address that was pulled
    backend     a name, or module:Class; absent: the native CPU backend where it is built, else the reference
    numerics    "fast", "invariant" or "portable"; absent: the strongest of the last two that every op has here
    threads     of the host, for kernels; absent: all this process may use
    context_len tokens a sequence may have; the model's own limit if absent
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
        page_size: int = 16,
        k_format: str = "f16",
        v_format: str = "f16",
        progress: Progress | None = None,
    ) -> None:
        checkpoint = open_checkpoint(resolve(str(model)))
        self._template = checkpoint.chat_template()
        longest = checkpoint.hyperparameters.context_len
        length = min(context_len or longest, longest)
        if length < 1 or page_size < 1 or max_batch_tokens < 1:
            raise BadInput("LLM", "sizes", (length, page_size, max_batch_tokens), "1 or more each")
        limits = Limits(
            max_tokens=max_batch_tokens,
            max_sequences=1,
            num_pages=-(-length // page_size),
            page_size=page_size,
            max_positions=length,
            k_format=k_format,
            v_format=v_format,
        )
        found = discovery.get(backend or discovery.default_name())
        with ThreadPoolExecutor(1) as pool:  # beside the packing of weights, most of which is native
            tokenizer = pool.submit(checkpoint.tokenizer)
            self.runner = Runner(checkpoint, found, limits, numerics, progress, threads)
            self.tokenizer = tokenizer.result()
        self.numerics = self.runner.tier.label
        del checkpoint  # with its metadata, a vocabulary of text
        self.runner.backend.settle()

    def generate(self, prompts: Prompt | Sequence[Prompt], params: SamplingParams | None = None) -> list[Completion]:
        """`params.n` answers to each prompt, in order. A prompt is a text or token ids."""
        params = (params or SamplingParams()).with_seed()
        answers = []
        for prompt in _as_list(prompts):
            ids = self._ids(prompt)
            answers += [Generation(self.runner, self.tokenizer, ids, params, i).completion() for i in range(params.n)]
        return answers

    def stream(self, prompt: Prompt, params: SamplingParams | None = None) -> Iterator[Piece]:
        """One answer as it comes."""
        yield from Generation(self.runner, self.tokenizer, self._ids(prompt), params or SamplingParams())

    def chat_prompt(self, messages: Sequence[Mapping[str, Any]]) -> list[int]:
        """Messages through the model's own template, as token ids; BadInput if it has none."""
        if self._template is None:
            raise BadInput("chat", "model", "no chat template", "a model that carries one")
        special = self.tokenizer.special
        text = self._template.render(
            messages,
            bos_token=self.tokenizer.token_text(special.bos),
            eos_token=self.tokenizer.token_text(special.eos),
        )
        return self.tokenizer.encode(text, add_special=False)

    def chat(self, messages: Sequence[Mapping[str, Any]], params: SamplingParams | None = None) -> Completion:
        """The model's answer to a conversation."""
        return self.generate([self.chat_prompt(messages)], params)[0]

    def score(self, text: Prompt, *, top_k: int = 0, logits: bool = False) -> Score:
        """Log-likelihood of a text or of token ids, position by position."""
        return score(self.runner, self._ids(text), top_k=top_k, keep_logits=logits)

    def _ids(self, prompt: Prompt) -> list[int]:
        if isinstance(prompt, str):
            return self.tokenizer.encode(prompt)
        ids = [int(i) for i in prompt]
        vocab_size = self.tokenizer.vocab_size
        wrong = next((i for i in ids if not 0 <= i < vocab_size), None)
        if wrong is not None:
            raise BadInput("prompt", "token id", wrong, f"0 .. {vocab_size - 1}")
        return ids


def _as_list(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    """One prompt or several: a text or a flat list of ids is one."""
    if isinstance(prompts, str) or (len(prompts) > 0 and isinstance(prompts[0], int)):
        return [prompts]  # type: ignore[list-item]
    return list(prompts)  # type: ignore[arg-type]
