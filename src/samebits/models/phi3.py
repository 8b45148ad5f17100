"""Phi-3 and Phi-3.5: Llama whose files join Q, K and V, and gate and up; longrope for contexts beyond the first."""

from __future__ import annotations

from samebits.models import llama
from samebits.models.architecture import Architecture, Rows, Weight
from samebits.models.parts import tensors as t
from samebits.models.parts.decoder import KEYS, Decoder, activation, read_decoder, rotary_dims, windows
from samebits.models.parts.ignored import WITHOUT_BIASES, Ignored
from samebits.models.parts.keys import MAX_CONTEXT, REQUIRED, Source, number, whole
from samebits.models.parts.rope import ROPE_TABLE, HfRotation, read_rope

#                            GGUF                               Hugging Face      bounds            where it is absent
PHI3_KEYS = KEYS | {
    "rms_eps":        number("attention.layer_norm_rms_epsilon", "rms_norm_eps",   1e-12, 1.0, 1e-5,
                             gguf_default=REQUIRED),
    "window":         whole("attention.sliding_window",         "sliding_window", 1, MAX_CONTEXT, None,
                            may_be_off=True),
}  # fmt: skip
# The rotation's names in the first files, and the first context's length, which transformers takes from beside it only.
ROTATION = HfRotation(
    original_len=4096,
    kinds={"default": "default", "longrope": "longrope", "su": "longrope", "yarn": "longrope"},
)
QKV, GATE_UP = ("Q", "K", "K"), ("F", "F")  # the rows that a joined tensor holds, in order
LAYER = (
    *t.NORMS,
    Weight("attn.q",   "Q H", "attn_qkv",    "self_attn.qkv_proj", rows=Rows(QKV, (0,))),
    Weight("attn.k",   "K H", "attn_qkv",    "self_attn.qkv_proj", rows=Rows(QKV, (1,))),
    Weight("attn.v",   "K H", "attn_qkv",    "self_attn.qkv_proj", rows=Rows(QKV, (2,))),
    Weight("attn.o",   "H Q", "attn_output", "self_attn.o_proj"),
    Weight("ffn.gate", "F H", "ffn_up",      "mlp.gate_up_proj",   rows=Rows(GATE_UP, (0,))),
    Weight("ffn.up",   "F H", "ffn_up",      "mlp.gate_up_proj",   rows=Rows(GATE_UP, (1,))),
    Weight("ffn.down", "H F", "ffn_down",    "mlp.down_proj"),
)  # fmt: skip


def read(source: Source) -> Decoder:
    values = source.values(PHI3_KEYS)
    layers = windows(source, values.pop("window"), [True] * values["num_layers"])
    dims = rotary_dims(source, values["head_size"], usual=1.0)
    return read_decoder(
        source,
        values,
        layers=layers,
        ropes={ROPE_TABLE: read_rope(source, dims, values["context_len"], ROTATION)},
        activation=activation(source, "hidden_act", default="silu"),
    )


IGNORED = Ignored(hf_only={**WITHOUT_BIASES, "full_attn_mod": (1,), "interpolate_factor": (1,)})
PHI3 = Architecture("phi3", ("phi3", "Phi3ForCausalLM"), read, t.TOP, LAYER, llama.build, ignored=IGNORED)
