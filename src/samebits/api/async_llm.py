"""`AsyncLLM`: a model that many tasks of an event loop ask at once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Unpack

from samebits.api.llm import LLM
from samebits.api.requests import Message, Params, Prompt, one_params, one_prompt, single
from samebits.api.structured import masks_of
from samebits.core.errors import BadInput
from samebits.engine.async_engine import AsyncEngine
from samebits.engine.request_options import NO_OPTIONS, RequestOptions
from samebits.engine.settings import EngineOptions
from samebits.loaders.catalog import DEFAULT_MODEL

if TYPE_CHECKING:
    import numpy as np

    from samebits.engine.answer import Completion, Piece
    from samebits.engine.sampling import SamplingParams
    from samebits.engine.text_jobs import Score


class AsyncLLM:
    """A model on a backend, with a thread of its own that computes all requests in batches.

    Takes the options of `LLM`. Loading blocks: `await asyncio.to_thread(AsyncLLM, model)` keeps the event loop free.
    Cancelling a task, or leaving a stream early, ends its request.
    """

    def __init__(self, model: str | Path = DEFAULT_MODEL, **options: Unpack[EngineOptions]) -> None:
        self._llm = LLM(model, **options)
        self._running: AsyncEngine | None = AsyncEngine(self._llm.engine)
        self._close_lock = threading.Lock()

    def __repr__(self) -> str:
        return f"Async{self._llm!r}"

    async def generate(
        self, prompt: Prompt, params: Params | None = None, *, response_format: Any = None
    ) -> list[Completion]:
        """Return the `params.n` answers to one prompt."""
        return await self._answers(self._engine, "generate", prompt, one_params("generate", params), response_format)

    async def chat(
        self, messages: str | Message | Sequence[Message], params: Params | None = None, *, response_format: Any = None
    ) -> Completion:
        """Answer a conversation, or a single user message given as a string."""
        engine = self._engine
        chosen = single("chat", one_params("chat", params), "generate gives several answers")
        prompt = await asyncio.to_thread(self._llm.chat_prompt, messages)
        return (await self._answers(engine, "chat", prompt, chosen, response_format))[0]

    async def stream(
        self, prompt: Prompt, params: Params | None = None, *, response_format: Any = None
    ) -> AsyncIterator[Piece]:
        """Yield one answer piece by piece. Raise BadInput for n > 1."""
        engine = self._engine
        chosen = single("stream", one_params("stream", params), "generate gives several answers")
        ids = await asyncio.to_thread(self._ids, "stream", prompt)
        async with self._masks("stream", response_format) as options:
            stream = await engine.generate(ids, chosen, options)
            try:
                async for _, piece in stream:
                    yield piece
            finally:
                stream.close()

    async def score(self, text: Prompt, *, top_k: int = 0) -> Score:
        """Return the log-likelihood of a text or of token ids, position by position."""
        engine = self._engine
        return await engine.score(await asyncio.to_thread(self._ids, "score", text), top_k=top_k)

    async def embed(self, text: Prompt, pooling: str = "mean") -> np.ndarray:
        """Return a float32 vector [hidden] of length 1 for a text."""
        engine = self._engine
        return await engine.embed(await asyncio.to_thread(self._ids, "embed", text), pooling)

    async def close(self) -> None:
        """End all requests and free the model. Later calls raise BadInput; a second close does nothing."""
        await asyncio.to_thread(self._close)

    async def __aenter__(self) -> AsyncLLM:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def _engine(self) -> AsyncEngine:
        """The engine's thread. Raises BadInput after `close`."""
        if self._running is None:
            raise BadInput("AsyncLLM", "model", "an LLM that was closed", "an open one")
        return self._running

    def _close(self) -> None:
        with self._close_lock:
            running, self._running = self._running, None
            if running is not None:
                running.close()
                del running  # it holds the engine, which LLM.close frees
                self._llm.close()

    @asynccontextmanager
    async def _masks(self, where: str, response_format: Any) -> AsyncIterator[RequestOptions]:
        """Yield what `masks_of` yields. Its process starts and ends on another thread: both take a while."""
        if response_format is None:
            yield NO_OPTIONS
            return
        stack = ExitStack()
        options = await asyncio.to_thread(stack.enter_context, masks_of(self._llm, where, response_format))
        try:
            yield options
        finally:
            await asyncio.to_thread(stack.close)

    def _ids(self, where: str, prompt: Prompt) -> list[int]:
        given = one_prompt(where, prompt, self._llm.tokenizer.num_ids)
        return self._llm.encode(given) if isinstance(given, str) else given

    async def _answers(
        self, engine: AsyncEngine, where: str, prompt: Prompt, params: SamplingParams, response_format: Any
    ) -> list[Completion]:
        ids = await asyncio.to_thread(self._ids, where, prompt)
        async with self._masks(where, response_format) as options:
            stream = await engine.generate(ids, params, options)
            try:
                return await stream.completions()
            finally:
                stream.close()
