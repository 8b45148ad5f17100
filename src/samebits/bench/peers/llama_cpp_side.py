"""llama.cpp through llama-cpp-python's low-level calls."""

from __future__ import annotations

import time
from importlib import import_module
from typing import Any

F16, Q8_0, BF16 = 1, 8, 30  # ggml's numbers of element types
SETTINGS = {  # of the KV cache and of flash attention, which a quantized V cannot do without
    "f16": (F16, False),
    "f16 fa": (F16, True),
    "bf16": (BF16, False),
    "bf16 fa": (BF16, True),
    "q8_0 fa": (Q8_0, True),
}
BATCH_TOKENS, UBATCH_TOKENS = 2048, 512  # what llama-bench takes
CONTEXT_STEP = 256  # a sequence's share of the cache is rounded up to it
MAX_LAYERS = 99  # on a GPU: more than a model has, which are all


def wrong_device(on_gpu: bool, gpu: str) -> str:
    """Return why a build that sees this GPU, or none (""), is no fair peer; "" if it is.

    A build that sees a GPU is refused beside our CPU even with no layer on the GPU: llama.cpp moves products of many
    rows there.
    """
    if on_gpu and not gpu:
        return "computes on the CPU, and samebits on a GPU; needs a build for the GPU"
    if gpu and not on_gpu:
        return f"computes on {gpu} too, and samebits on the CPU; needs a build for the CPU, or CUDA_VISIBLE_DEVICES="
    return ""


class Peer:
    """One model, and the context of the row being measured."""

    def __init__(self) -> None:
        self._c: Any = import_module("llama_cpp")
        self._log: list[str] = []
        self._callback = self._c.llama_log_callback(
            lambda level, text, data: self._log.append(text.decode(errors="replace"))
        )
        self._c.llama_log_set(self._callback, None)
        self._context: Any = None
        self._context_key: tuple[Any, ...] = ()
        self._filled = (0, 0)  # sequences and tokens of each that the cache holds

    def load(self, path: str, threads: int, shape: dict[str, Any], on_gpu: bool) -> dict[str, Any]:
        c = self._c
        c.llama_backend_init()
        if reason := wrong_device(on_gpu, "a GPU" if c.llama_supports_gpu_offload() else ""):
            raise RuntimeError(f"this build {reason}")
        self._threads, self._vocab_size = threads, shape["vocab_size"]
        params = c.llama_model_default_params()
        params.n_gpu_layers = MAX_LAYERS if on_gpu else 0
        self._model = c.llama_model_load_from_file(path.encode(), params)
        if not self._model:
            raise RuntimeError(f"llama.cpp cannot load it: {''.join(self._log[-2:]).strip()}")
        facts = {
            "version": f"llama-cpp-python {c.__version__}",
            "system": c.llama_print_system_info().decode().strip(),
            "amx": any("AMX" in line and "buffer size" in line for line in self._log),
        }
        return {"facts": facts, "settings": list(SETTINGS)}

    def prefill(self, num_tokens: int, setting: str) -> float:
        """Seconds of one prompt in an empty cache, logits of its last token only."""
        self._use_context(setting, 1, num_tokens)
        self._c.llama_memory_clear(self._c.llama_get_memory(self._context), False)
        self._filled = (0, 0)
        return self._run_prompt(0, num_tokens)

    def decode(self, num_tokens: int, num_sequences: int, depth: int, setting: str) -> float:
        """Seconds of `num_tokens` steps of all sequences, each `depth` tokens and one untimed step long."""
        self._use_context(setting, num_sequences, depth + 1 + num_tokens)
        memory = self._c.llama_get_memory(self._context)
        is_filled = self._filled == (num_sequences, depth)
        # A recurrent state cannot be shortened: then the call says so, and prompts are run again.
        if not (is_filled and all(self._c.llama_memory_seq_rm(memory, s, depth, -1) for s in range(num_sequences))):
            self._c.llama_memory_clear(memory, False)
            for sequence in range(num_sequences if depth else 0):
                self._run_prompt(sequence, depth)
            self._filled = (num_sequences, depth)
        batch = self._batch([(sequence, depth, True) for sequence in range(num_sequences)])
        seconds = 0.0
        for step in range(num_tokens + 1):
            for row in range(num_sequences):
                batch.pos[row] = depth + step
            taken = self._run(batch)
            seconds += taken if step else 0.0
        self._c.llama_batch_free(batch)
        return seconds

    def serve(self, num_tokens: int, prompt_lens: list[int], setting: str) -> float:
        """Seconds of all prompts, packed into full batches, then of `num_tokens` - 1 steps of all sequences."""
        self._use_context(setting, len(prompt_lens), max(prompt_lens) + num_tokens)
        self._c.llama_memory_clear(self._c.llama_get_memory(self._context), False)
        self._filled = (0, 0)
        entries = [(s, i, i == count - 1) for s, count in enumerate(prompt_lens) for i in range(count)]
        seconds = self._run_all([entries[i : i + BATCH_TOKENS] for i in range(0, len(entries), BATCH_TOKENS)])
        steps = range(num_tokens - 1)  # the first tokens come with the prompts
        return seconds + self._run_all([[(s, n + i, True) for s, n in enumerate(prompt_lens)] for i in steps])

    def _use_context(self, setting: str, num_sequences: int, tokens_each: int) -> None:
        tokens_each = -(-tokens_each // CONTEXT_STEP) * CONTEXT_STEP
        key = (setting, num_sequences, tokens_each)
        if key == self._context_key:
            return
        c, (kv_type, flash) = self._c, SETTINGS[setting]
        if self._context:
            c.llama_free(self._context)
        params = c.llama_context_default_params()
        params.n_ctx, params.n_seq_max, params.kv_unified = num_sequences * tokens_each, num_sequences, False
        params.n_batch, params.n_ubatch = BATCH_TOKENS, UBATCH_TOKENS
        params.n_threads = params.n_threads_batch = self._threads
        params.type_k = params.type_v = kv_type
        params.flash_attn_type = int(flash)
        self._context_key, self._filled = (), (0, 0)
        self._context = c.llama_init_from_model(self._model, params)
        if not self._context:
            raise RuntimeError(f"no context for {setting}: {''.join(self._log[-2:]).strip()}")
        self._context_key = key

    def _batch(self, entries: list[tuple[int, int, bool]]) -> Any:
        """A batch of (sequence, position, whether its logits are wanted)."""
        batch = self._c.llama_batch_init(len(entries), 0, 1)
        batch.n_tokens = len(entries)
        for row, (sequence, position, wanted) in enumerate(entries):
            batch.token[row] = 1 + (31 * position + 7 * sequence) % (self._vocab_size - 1)
            batch.pos[row], batch.logits[row] = position, wanted
            batch.n_seq_id[row], batch.seq_id[row][0] = 1, sequence
        return batch

    def _run_prompt(self, sequence: int, num_tokens: int) -> float:
        last = num_tokens - 1
        spans = [range(start, min(start + BATCH_TOKENS, num_tokens)) for start in range(0, num_tokens, BATCH_TOKENS)]
        return self._run_all([[(sequence, position, position == last) for position in span] for span in spans])

    def _run_all(self, parts: list[list[tuple[int, int, bool]]]) -> float:
        seconds = 0.0
        for part in parts:
            batch = self._batch(part)
            seconds += self._run(batch)
            self._c.llama_batch_free(batch)
        return seconds

    def _run(self, batch: Any) -> float:
        started = time.perf_counter()
        status = self._c.llama_decode(self._context, batch)
        self._c.llama_synchronize(self._context)
        if status:
            raise RuntimeError(f"llama_decode returned {status}")
        return time.perf_counter() - started
