"""Qwen3: Llama with an RMSNorm on every query and key head before the rotation, and Qwen2's windows."""

from __future__ import annotations

from samebits.models import llama
from samebits.models.architecture import Architecture
from samebits.models.parts import tensors as t
from samebits.models.parts.decoder import Decoder, activation, read_decoder
from samebits.models.parts.keys import Source
from samebits.models.qwen2 import IGNORED, QWEN_KEYS, layers_of


def read(source: Source) -> Decoder:
    values = source.values(QWEN_KEYS)
    layers = layers_of(source, values.pop("window"), values.pop("first_window"), values["num_layers"])
    return read_decoder(source, values, layers=layers, activation=activation(source, "hidden_act", default="silu"))


LAYER = (*t.NORMS, *t.ATTENTION, *t.QKV_BIASES, *t.OUT_BIAS, *t.HEAD_NORMS, *t.FFN)
QWEN3 = Architecture("qwen3", ("qwen3", "Qwen3ForCausalLM"), read, t.TOP, LAYER, llama.build, ignored=IGNORED)
