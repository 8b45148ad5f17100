"""Qwen2 and 2.5: Llama with biases on Q, K and V, and windows in the later layers where a config asks for them."""

from __future__ import annotations

from samebits.models import llama
from samebits.models.architecture import Architecture
from samebits.models.parts import tensors as t
from samebits.models.parts.decoder import KEYS, Decoder, Layer, activation, read_decoder, windows
from samebits.models.parts.ignored import Ignored, words
from samebits.models.parts.keys import MAX_CONTEXT, MAX_LAYERS, Source, whole

#                            GGUF                        Hugging Face          bounds         where it is absent
QWEN_KEYS = KEYS | {
    "window":         whole("attention.sliding_window",  "sliding_window",     1, MAX_CONTEXT, 4096,
                            gguf_default=None, may_be_off=True),
    "first_window":   whole(None,                        "max_window_layers",  0, MAX_LAYERS, 28,
                            gguf_default=0),
}  # fmt: skip


def layers_of(source: Source, window: int | None, first: int, num_layers: int) -> tuple[Layer, ...]:
    """Windows from a layer on; a config.json has to switch them on."""
    if not source.is_gguf and not source.flag("use_sliding_window", False):
        window = None
    return windows(source, window, [i >= first for i in range(num_layers)])


def read(source: Source) -> Decoder:
    values = source.values(QWEN_KEYS)
    layers = layers_of(source, values.pop("window"), values.pop("first_window"), values["num_layers"])
    name = activation(source, "hidden_act", default="silu")
    return read_decoder(source, values, layers=layers, activation=name, has_qkv_bias=True, has_out_bias=False)


# An attention of vLLM's for the 1M models and prompts longer than a chunk; transformers and llama.cpp do not read it.
CHUNKS = words("dual_chunk_attention_config")
LAYER = (*t.NORMS, *t.ATTENTION, *t.QKV_BIASES, *t.FFN)
IGNORED = Ignored(hf=CHUNKS)
QWEN2 = Architecture("qwen2", ("qwen2", "Qwen2ForCausalLM"), read, t.TOP, LAYER, llama.build, ignored=IGNORED)
