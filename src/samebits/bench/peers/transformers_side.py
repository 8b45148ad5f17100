"""transformers on torch, weights in bfloat16: a folder's own, or for a GGUF file random ones of the same shape."""

from __future__ import annotations

import os
import time
from importlib import import_module
from typing import Any

CHUNK_TOKENS = 512  # in which a cache is filled before a decode
CONFIG_NAMES = {  # ours -> theirs
    "num_layers": "num_hidden_layers",
    "hidden_size": "hidden_size",
    "ffn_size": "intermediate_size",
    "num_heads": "num_attention_heads",
    "num_kv_heads": "num_key_value_heads",
    "head_size": "head_dim",
    "vocab_size": "vocab_size",
    "context_len": "max_position_embeddings",
    "rms_eps": "rms_norm_eps",
    "is_tied": "tie_word_embeddings",
}


class Peer:
    """One model, and the cache of the row being measured."""

    def __init__(self) -> None:
        self._torch: Any = import_module("torch")
        self._transformers: Any = import_module("transformers")
        self._cache: Any = None
        self._filled = (0, 0)  # sequences and tokens of each that the cache holds

    def load(self, path: str, threads: int, shape: dict[str, Any], on_gpu: bool) -> dict[str, Any]:
        if on_gpu:
            raise RuntimeError("is measured on the CPU alone, and samebits runs on a GPU")
        torch, transformers = self._torch, self._transformers
        torch.set_num_threads(threads)
        auto = transformers.AutoModelForCausalLM
        is_folder = os.path.isdir(path)
        if is_folder:
            self._model = auto.from_pretrained(path, dtype=torch.bfloat16, local_files_only=True)
        else:
            config = {theirs: shape[ours] for ours, theirs in CONFIG_NAMES.items()}
            torch.set_default_dtype(torch.bfloat16)
            self._model = auto.from_config(transformers.AutoConfig.for_model(shape["architecture"], **config))
        self._model.eval()
        self._vocab_size = shape["vocab_size"]
        facts = {
            "version": f"transformers {transformers.__version__}, torch {torch.__version__}",
            "weights": "the folder's" if is_folder else "random, same shape",
        }
        return {"facts": facts, "settings": ["bf16"]}

    def prefill(self, num_tokens: int, setting: str) -> float:
        """Seconds of one prompt, logits of its last token only."""
        self._filled = (0, 0)
        self._cache = self._transformers.DynamicCache()
        return self._run(self._tokens(0, num_tokens, 1))

    def decode(self, num_tokens: int, num_sequences: int, depth: int, setting: str) -> float:
        """Seconds of `num_tokens` steps of all sequences, each `depth` tokens and one untimed step long."""
        if depth and self._filled == (num_sequences, depth):
            self._cache.crop(depth - self._cache.get_seq_length())
        else:
            self._cache = self._transformers.DynamicCache()
            for start in range(0, depth, CHUNK_TOKENS):
                self._run(self._tokens(start, min(start + CHUNK_TOKENS, depth), num_sequences))
            self._filled = (num_sequences, depth)
        steps = [self._tokens(depth + i, depth + i + 1, num_sequences) for i in range(num_tokens + 1)]
        self._run(steps[0])
        return sum(self._run(step) for step in steps[1:])

    def _tokens(self, start: int, stop: int, num_sequences: int) -> Any:
        positions, sequences = self._torch.arange(start, stop), self._torch.arange(num_sequences)
        return 1 + (31 * positions[None, :] + 7 * sequences[:, None]) % (self._vocab_size - 1)

    def _run(self, input_ids: Any) -> float:
        started = time.perf_counter()
        with self._torch.inference_mode():
            self._model(input_ids=input_ids, past_key_values=self._cache, use_cache=True, logits_to_keep=1)
        return time.perf_counter() - started
