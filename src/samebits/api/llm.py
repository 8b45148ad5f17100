"""`LLM`: a model, loaded once, asked many times."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack, overload

from samebits.api.requests import (
    Message,
    Params,
    Prompt,
    is_list_of_conversations,
    one_params,
    one_prompt,
    params_for,
    several_prompts,
    single,
)
from samebits.api.structured import grammar_of, masks_of
from samebits.api.texts import Texts
from samebits.core.arguments import flag, whole_number
from samebits.core.collector import collector_paused
from samebits.core.errors import BadInput
from samebits.engine.sampling import SamplingParams
from samebits.engine.settings import MAX_SIZE, EngineOptions, documented, settings_from
from samebits.loaders.catalog import DEFAULT_MODEL

if TYPE_CHECKING:  # what a model needs is imported for a model
    import numpy as np

    from samebits.api.outputs import RequestOutput
    from samebits.backends.interface import CompileProgress
    from samebits.engine.answer import Completion, Piece
    from samebits.engine.engine import Engine
    from samebits.engine.job import Generation, Job
    from samebits.engine.sizes import Division
    from samebits.engine.text_jobs import Score
    from samebits.engine.weights import Progress
    from samebits.loaders.files import Facts
    from samebits.loaders.tokenizer import Tokenizer
    from samebits.models.checkpoint import FileCheckpoint
    from samebits.receipts.record import Model, Receipt
    from samebits.receipts.verdict import Verdict
    from samebits.scheduler import Policy

log = logging.getLogger("samebits.api")
AnyJob = TypeVar("AnyJob", bound="Job")
__all__ = ["LLM", "SamplingParams"]


class LLM(Texts):
    """A model on a backend.

    model     a short name such as "smollm2", "hf:owner/repo:Q4_K_M", a path to a GGUF file or a Hugging Face folder,
              or an address; what is not here yet is fetched
    options   the fields of EngineSettings, listed below. `max_model_len` is vLLM's name for `context_len`

    While it is loaded:
    progress          is called with the number of tensors that are there, and of all
    compile_progress  is called with the number of kernels compiled, of all that it waits for, and the seconds so far,
                      on a backend that compiles them and where they are not on disk
    """

    def __init__(
        self,
        model: str | Path = DEFAULT_MODEL,
        *,
        progress: Progress | None = None,
        compile_progress: CompileProgress | None = None,
        **options: Unpack[EngineOptions],
    ) -> None:
        if not isinstance(model, str | Path) or not str(model):
            raise BadInput("LLM", "model", repr(model), "a name, a path or an address")
        settings = settings_from(options)
        with collector_paused():  # imports drop nothing
            from samebits.backends import discovery
            from samebits.engine.runner import Runner
            from samebits.engine.sizes import divide, policy_for
            from samebits.loaders.files import facts_of
            from samebits.loaders.obtain import obtain
            from samebits.models.checkpoint import open_checkpoint
        if settings.speculate is not None:
            from samebits.engine.drafts.choice import check_choice, draft_checkpoint

            check_choice(settings.speculate)
        where = settings.backend or discovery.default_name()
        discovery.expect_model(where)
        with collector_paused():
            found = discovery.get(where)  # imports a toolchain
            policy = policy_for(settings, found)
            path = obtain(model)
            checkpoint = open_checkpoint(path)
            self.path, self.settings = path, settings
            which = partial(_identity, model, path, facts_of(checkpoint.file))
            self.chat_template = checkpoint.chat_template()
            self.sampling_defaults = checkpoint.sampling_defaults(settings.sampling_defaults)
            drafting = draft_checkpoint(settings.speculate) if settings.speculate is not None else None
            division = divide(checkpoint, found, settings, policy, drafting)
            # before anything that stays, so that the memory it used is given back whole
            self.tokenizer = checkpoint.tokenizer()
            self.runner = Runner(
                checkpoint, found, division.limits, settings.numerics, progress, settings.threads, division
            )
        self.numerics = self.runner.tier.label
        self._is_closed = False

        self.engine = self._engine_of(policy, which, drafting)
        self.runner.backend.await_compiled(compile_progress)
        if self.runner.reserve(checkpoint):
            del self.engine
            gc.collect()  # the pages of a smaller model that drafts, before it gets others
            self.engine = self._engine_of(policy, which, drafting)
        del checkpoint, drafting  # with their metadata, vocabularies of text
        for note in self.division.notes:
            log.warning("%s", note)
        self.max_len, self.vocab_size = self.engine.max_len, self.runner.vocab_size
        self.runner.backend.trim()

    def _engine_of(self, policy: Policy, identity: Callable[[], Model], drafting: FileCheckpoint | None) -> Engine:
        """Return an engine for the runner. `drafting` is the smaller model that drafts, if one does."""
        from samebits.engine.engine import Engine

        speculate, drafter = self.settings.speculate, None
        if speculate is not None:
            from samebits.engine.drafts.choice import make_drafter

            drafter = make_drafter(speculate, self.runner, self.tokenizer, drafting)
        shares = self.settings.share_prefixes
        return Engine(
            self.runner,
            self.tokenizer,
            policy,
            shares_prefixes=shares,
            drafter=drafter,
            identity=identity,
            defaults=self.sampling_defaults,
        )

    @property
    def division(self) -> Division:
        """How the device's memory is divided into weights, workspace and pages."""
        division = self.runner.division
        if division is None:
            raise BadInput("LLM", "division", "a runner without one", "a model that LLM has loaded")
        return division

    def __repr__(self) -> str:
        if self._is_closed:
            return f"LLM({self.path.name!r}, closed)"
        return f"LLM({self.path.name!r}, backend={self.runner.backend.name!r}, numerics={self.numerics!r})"

    def __enter__(self) -> LLM:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        if name in ("engine", "runner") and vars(self).get("_is_closed"):
            raise BadInput("LLM", "model", "an LLM that was closed", "an open one")
        raise AttributeError(f"'LLM' object has no attribute {name!r}")

    def close(self) -> None:
        """Cancel all requests and free the model's memory. Later calls raise BadInput; a second close does nothing."""
        if self._is_closed:
            return
        backend = self.runner.backend
        self.engine.cancel_all()
        self._is_closed = True
        del self.engine, self.runner
        gc.collect()
        backend.trim()

    def get_tokenizer(self) -> Tokenizer:
        """Return the model's tokenizer, which has `encode` and `decode`."""
        return self.tokenizer

    @overload
    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: Params | Sequence[Params] | None = None,
        *,
        sampling_params: None = None,
        response_format: Any = None,
    ) -> list[Completion]: ...

    @overload
    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: None = None,
        *,
        sampling_params: Params | Sequence[Params],
        response_format: Any = None,
    ) -> list[RequestOutput]: ...

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: Params | Sequence[Params] | None = None,
        *,
        sampling_params: Params | Sequence[Params] | None = None,
        response_format: Any = None,
    ) -> list[Completion] | list[RequestOutput]:
        """Return `params.n` answers to each prompt, in order. A prompt is a text or token ids.

        params           for all prompts, as SamplingParams or a dict of its fields, or a list with one for each prompt
        sampling_params  the same under vLLM's name: the result then has a RequestOutput for each prompt, as vLLM's has
        response_format  the form of the answers: OpenAI's response_format, or one of vLLM's structured outputs
        """
        if sampling_params is None:
            jobs, _ = self._completed(prompts, params, response_format)
            return [answer for job in jobs for answer in job.completions()]
        if params is not None:
            raise BadInput("generate", "params and sampling_params", "both", "one of them: they mean the same")
        from samebits.api.outputs import RequestOutput  # imports the engine: not at `import samebits`

        texts = several_prompts("generate", prompts, self.tokenizer.num_ids)[0]  # read once: it may be a generator
        jobs, ids = self._completed(texts, sampling_params, response_format)
        return [
            RequestOutput(str(i), text if isinstance(text, str) else None, tuple(tokens), tuple(job.completions()))
            for i, (text, tokens, job) in enumerate(zip(texts, ids, jobs, strict=True))
        ]

    def _completed(
        self, prompts: Prompt | Sequence[Prompt], params: Params | Sequence[Params] | None, response_format: Any
    ) -> tuple[list[Generation], list[list[int]]]:
        """Return the finished job of each prompt, and each prompt's token ids."""
        ids = self._several_ids("generate", prompts)[0]
        chosen = params_for("generate", params, len(ids))
        with masks_of(self, "generate", response_format) as options:
            jobs = self._queued(partial(self.engine.generate, ids[i], chosen[i], options) for i in range(len(ids)))
            with collector_paused():  # answers have no cycles, and a search of everything may take many steps' time
                self.engine.complete(*jobs)
        return jobs, ids

    def _queued(self, starts: Iterable[Callable[[], AnyJob]]) -> list[AnyJob]:
        """Queue jobs. If one cannot start, or at an interrupt, cancel the others before raising."""
        jobs: list[AnyJob] = []
        try:
            for start in starts:
                jobs.append(start())
        except BaseException:
            for job in jobs:
                self.engine.cancel(job)
            raise
        return jobs

    def stream(self, prompt: Prompt, params: Params | None = None, *, response_format: Any = None) -> Iterator[Piece]:
        """Stream one answer piece by piece. Raise BadInput immediately if an argument is wrong."""
        chosen = single("stream", one_params("stream", params), "generate gives several answers")
        grammar_of("stream", response_format)
        return self._pieces(self._ids("stream", prompt), chosen, response_format)

    def _pieces(self, prompt: list[int], params: SamplingParams, response_format: Any) -> Iterator[Piece]:
        """Yield an answer's pieces. Nothing is queued before the first piece is asked for."""
        with masks_of(self, "stream", response_format) as options:
            job = self.engine.generate(prompt, params, options)
            try:
                while not job.is_done or job.events:
                    while not job.events:
                        self.engine.step()
                    yield job.events.popleft()[1]
                job.check()
            finally:
                if not self._is_closed:  # close() has cancelled every job
                    self.engine.cancel(job)

    @overload
    def chat(
        self,
        messages: str | Message | Sequence[Message],
        params: Params | None = None,
        *,
        stream: Literal[False] = False,
        response_format: Any = None,
    ) -> Completion: ...

    @overload
    def chat(
        self,
        messages: Sequence[Sequence[Message]],
        params: Params | Sequence[Params] | None = None,
        *,
        stream: Literal[False] = False,
        response_format: Any = None,
    ) -> list[Completion]: ...

    @overload
    def chat(
        self,
        messages: str | Message | Sequence[Message],
        params: Params | None = None,
        *,
        stream: Literal[True],
        response_format: Any = None,
    ) -> Iterator[Piece]: ...

    def chat(
        self,
        messages: str | Message | Sequence[Message] | Sequence[Sequence[Message]],
        params: Params | Sequence[Params] | None = None,
        *,
        stream: bool = False,
        response_format: Any = None,
    ) -> Completion | list[Completion] | Iterator[Piece]:
        """Answer a conversation, a single user message given as a string, or each of a list of conversations.

        stream           yield the answer of one conversation piece by piece
        response_format  as for `generate`
        """
        flag("chat", "stream", stream)
        if is_list_of_conversations(messages):
            if stream:
                raise BadInput("chat", "stream", "several conversations", "one")
            prompts = [self.chat_prompt(one) for one in messages]
            every = [single("chat", one, "one answer each") for one in params_for("chat", params, len(prompts))]
            return self.generate(prompts, every, response_format=response_format)
        prompt = self.chat_prompt(messages)  # type: ignore[arg-type]
        chosen = single(
            "chat",
            one_params("chat", params),  # type: ignore[arg-type]
            "generate gives several answers to what chat_prompt returns",
        )
        if stream:
            grammar_of("chat", response_format)
            return self._pieces(prompt, chosen, response_format)
        return self.generate([prompt], chosen, response_format=response_format)[0]

    def score(self, text: Prompt, *, top_k: int = 0, logits: bool = False) -> Score:
        """Log-likelihood of a text or of token ids, position by position."""
        count = whole_number("score", "top_k", top_k, 0, MAX_SIZE)
        job = self.engine.score(self._ids("score", text), top_k=count, keep_logits=flag("score", "logits", logits))
        self.engine.complete(job)
        return job.score()

    def replay(
        self,
        receipts: Receipt | Sequence[Receipt],
        *,
        public_key: Path | None = None,
        max_tokens: int | None = None,
    ) -> list[Verdict]:
        """Makes the answers of receipts again, all in one batch, and compares every bit: a verdict for each.

        public_key   the file of the key with which they must be signed
        max_tokens   of each answer, how many tokens to check; all if absent
        """
        from samebits.api.replay import Replayer
        from samebits.receipts.record import Receipt
        from samebits.receipts.signing import read_public_key

        several = [receipts] if isinstance(receipts, Receipt) else list(receipts)
        if any(not isinstance(receipt, Receipt) for receipt in several):
            raise BadInput("replay", "receipts", "of another type", "receipts: answers have them, from_json reads them")
        if max_tokens is not None:
            whole_number("replay", "max_tokens", max_tokens, 1, MAX_SIZE)
        key = None if public_key is None else read_public_key(public_key)
        replayer = Replayer(self.engine, self.tokenizer, self.path, public_key=key, max_tokens=max_tokens)
        return replayer.replay(several)

    def embed(self, texts: Prompt | Sequence[Prompt], pooling: str = "mean") -> np.ndarray:
        """float32 [hidden] of length 1: the mean of the text's last hidden states, or the "last" one.

        Of several texts, one row each: [num_texts, hidden].
        """
        import numpy as np

        ids, is_alone = self._several_ids("embed", texts)
        if not ids:
            raise BadInput("embed", "texts", "none", "a text, or several")
        jobs = self._queued(partial(self.engine.embed, text, pooling) for text in ids)
        self.engine.complete(*jobs)
        vectors = np.stack([job.vector() for job in jobs])
        return vectors[0] if is_alone else vectors

    def _ids(self, where: str, prompt: Prompt) -> list[int]:
        return self._encoded(one_prompt(where, prompt, self.tokenizer.num_ids))

    def _several_ids(self, where: str, prompts: Prompt | Sequence[Prompt]) -> tuple[list[list[int]], bool]:
        """(ids of each prompt, whether it was one alone)."""
        found, is_alone = several_prompts(where, prompts, self.tokenizer.num_ids)
        return [self._encoded(prompt) for prompt in found], is_alone

    def _encoded(self, prompt: str | list[int]) -> list[int]:
        return self.encode(prompt) if isinstance(prompt, str) else prompt


documented(LLM)


def _identity(model: str | Path, path: Path, facts: Facts) -> Model:
    """Which model it is that was asked for as `model` and found at `path`."""
    from samebits.receipts.identity import identity, people_name

    return identity(people_name(model, path), path, facts)
