"""gpt-oss: experts in MXFP4 with biases everywhere, a sink per head of attention, every other layer in a window.

| router        | the best logits, bias and all, softmax over those                                          |
| expert        | gate up to the limit, up within both limits: (up + 1) * gate * sigmoid(alpha * gate)         |
| shared expert | none                                                                                       |
| rotation      | YaRN whose ramp ends between whole elements; GGUF has no key for that                      |

Hugging Face's files interleave the rows of gate and up; those in 16 or 32 bits store matrices as [in, out].
"""

from __future__ import annotations

from dataclasses import replace

from samebits.models import llama
from samebits.models.architecture import Architecture, Rows, Weight
from samebits.models.parts import mixture
from samebits.models.parts import tensors as t
from samebits.models.parts.decoder import KEYS, Decoder, read_decoder, rotary_dims, windows
from samebits.models.parts.ignored import Ignored, words
from samebits.models.parts.keys import (
    MAX_CONTEXT,
    MAX_EXPERTS,
    MAX_HEAD_SIZE,
    MAX_LAYERS,
    MAX_WIDTH,
    REQUIRED,
    Source,
    number,
    whole,
)
from samebits.models.parts.rope import ROPE_TABLE, HfRotation, Rope, read_rope

YARN = {"rope_type": "yarn", "factor": 32.0, "truncate": False, "original_max_position_embeddings": 4096}
ROTATION = HfRotation(theta=150000.0, parameters=YARN)

#                            GGUF                                Hugging Face             bounds           absent
GPT_OSS_KEYS = KEYS | {
    "head_size":      whole("attention.key_length",              "head_dim",              1, MAX_HEAD_SIZE, 64),
    "rms_eps":        number("attention.layer_norm_rms_epsilon", "rms_norm_eps",          1e-12, 1.0, 1e-5,
                             gguf_default=REQUIRED),
    "ffn_size":       whole("expert_feed_forward_length",        "intermediate_size",     1, MAX_WIDTH),
    "window":         whole("attention.sliding_window",          "sliding_window",        1, MAX_CONTEXT, 128,
                            may_be_off=True),
    "period":         whole("attention.sliding_window_pattern",  None,                    1, MAX_LAYERS, 2),
}  # fmt: skip
MIXTURE_KEYS = {
    "num_experts":    whole("expert_count",                      "num_local_experts",     1, MAX_EXPERTS, 128,
                            gguf_default=REQUIRED, hf_too="num_experts"),
    "top_k":          whole("expert_used_count",                 "num_experts_per_tok",   1, MAX_EXPERTS, 4,
                            gguf_default=REQUIRED),
    "expert_size":    GPT_OSS_KEYS["ffn_size"],
    "alpha":          number(None,                               "swiglu_alpha",          1e-3, 1e3, 1.702),
    "limit":          number(None,                               "swiglu_limit",          1e-3, 1e6, 7.0),
}  # fmt: skip
GATE, UP = (Rows(("1", "1"), (part,), groups="ExpertSize", axis=1) for part in (0, 1))  # row by row in turn
NORMS = (
    Weight("attn_norm",             "H",                    "attn_norm",           "input_layernorm"),
    Weight("ffn_norm",              "H",                    "post_attention_norm", "post_attention_layernorm"),
)  # fmt: skip
EXPERTS = (
    Weight("attn.sinks",            "A",                    "attn_sinks",          "self_attn.sinks",
           is_f32=True, bare="hf"),
    Weight("ffn.router",            "Experts H",            "ffn_gate_inp",        "mlp.router"),
    Weight("ffn.router_bias",       "Experts",              "ffn_gate_inp.bias",   "mlp.router.bias"),
    Weight("ffn.experts.gate",      "Experts ExpertSize H", "ffn_gate_exps",       "mlp.experts.gate_up_proj",
           hf_rows=GATE, hf_is_swapped=True, bare="hf"),
    Weight("ffn.experts.up",        "Experts ExpertSize H", "ffn_up_exps",         "mlp.experts.gate_up_proj",
           hf_rows=UP, hf_is_swapped=True, bare="hf"),
    Weight("ffn.experts.down",      "Experts H ExpertSize", "ffn_down_exps",       "mlp.experts.down_proj",
           hf_is_swapped=True, bare="hf"),
    Weight("ffn.experts.gate_bias", "Experts ExpertSize",   "ffn_gate_exps.bias",  "mlp.experts.gate_up_proj_bias",
           hf_rows=GATE, is_f32=True, bare="hf"),
    Weight("ffn.experts.up_bias",   "Experts ExpertSize",   "ffn_up_exps.bias",    "mlp.experts.gate_up_proj_bias",
           hf_rows=UP, is_f32=True, bare="hf"),
    Weight("ffn.experts.down_bias", "Experts H",            "ffn_down_exps.bias",  "mlp.experts.down_proj_bias",
           is_f32=True, bare="hf"),
)  # fmt: skip


def read(source: Source) -> Decoder:
    values = source.values(GPT_OSS_KEYS)
    period, num_layers = values.pop("period"), values["num_layers"]
    layers = windows(source, values.pop("window"), [(i + 1) % period != 0 for i in range(num_layers)])
    experts = mixture.read_mixture(source, MIXTURE_KEYS, "chosen", is_normalized=False, has_bias=True, is_joined=False)
    return read_decoder(
        source,
        values,
        layers=mixture.with_experts(layers, experts),
        ropes={ROPE_TABLE: _rope(source, rotary_dims(source, values["head_size"]), values["context_len"])},
        has_qkv_bias=source.is_gguf or source.flag("attention_bias", True),
        has_out_bias=source.is_gguf or source.flag("attention_bias", True),
        mixture=experts,
    )


def _rope(source: Source, dims: int, context_len: int) -> Rope:
    """As OpenAI's model turns, whatever other readers of GGUF files make of it."""
    rope = read_rope(source, dims, context_len, ROTATION)
    return replace(rope, scaling=replace(rope.scaling, is_truncated=False)) if source.is_gguf else rope


LAYER = (*NORMS, *t.ATTENTION, *t.QKV_BIASES, *t.OUT_BIAS)
GPT_OSS = Architecture(
    "gpt-oss",
    ("gpt_oss", "GptOssForCausalLM"),
    read,
    t.TOP,
    LAYER,
    llama.build,
    kinds={"experts": EXPERTS},
    ignored=Ignored(
        hf=words("experts_per_token initial_context_length"),
        hf_only={"hidden_act": ("silu",)},
        gguf=words("feed_forward_length"),  # that of an expert, once more
    ),
)
