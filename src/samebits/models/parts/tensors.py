"""Tables of tensors that architectures share. Letters of shapes: see `Decoder.dims`."""

from __future__ import annotations

from samebits.models.architecture import Weight

#            ours             shape   GGUF                    Hugging Face
TOP = (
    Weight("embed",             "V H", "token_embd",           "model.embed_tokens"),
    Weight("norm",              "H",   "output_norm",          "model.norm"),
    Weight("head",              "V H", "output",               "lm_head", when="has_head"),
    Weight("rope_freqs",        "R",   "rope_freqs",           "rope_freqs", when="has_rope_freqs"),
    Weight("rope_factors.short", "R",  "rope_factors_short",   "rope_factors_short", when="has_rope_factors"),
    Weight("rope_factors.long", "R",   "rope_factors_long",    "rope_factors_long", when="has_rope_factors"),
)  # fmt: skip
NORMS = (
    Weight("attn_norm",         "H",   "attn_norm",            "input_layernorm"),
    Weight("ffn_norm",          "H",   "ffn_norm",             "post_attention_layernorm"),
)  # fmt: skip
ATTENTION = (
    Weight("attn.q",            "Q H", "attn_q",               "self_attn.q_proj"),
    Weight("attn.k",            "K H", "attn_k",               "self_attn.k_proj"),
    Weight("attn.v",            "K H", "attn_v",               "self_attn.v_proj"),
    Weight("attn.o",            "H Q", "attn_output",          "self_attn.o_proj"),
)  # fmt: skip
QKV_BIASES = (
    Weight("attn.q_bias",       "Q",   "attn_q.bias",          "self_attn.q_proj.bias", when="has_qkv_bias"),
    Weight("attn.k_bias",       "K",   "attn_k.bias",          "self_attn.k_proj.bias", when="has_qkv_bias"),
    Weight("attn.v_bias",       "K",   "attn_v.bias",          "self_attn.v_proj.bias", when="has_qkv_bias"),
)  # fmt: skip
OUT_BIAS = (
    Weight("attn.o_bias",       "H",   "attn_output.bias",     "self_attn.o_proj.bias", when="has_out_bias"),
)  # fmt: skip
HEAD_NORMS = (
    Weight("attn.q_norm",       "D",   "attn_q_norm",          "self_attn.q_norm"),
    Weight("attn.k_norm",       "D",   "attn_k_norm",          "self_attn.k_norm"),
)  # fmt: skip
FFN = (
    Weight("ffn.gate",          "F H", "ffn_gate",             "mlp.gate_proj"),
    Weight("ffn.up",            "F H", "ffn_up",               "mlp.up_proj"),
    Weight("ffn.down",          "H F", "ffn_down",             "mlp.down_proj"),
)  # fmt: skip
FFN_BIASES = (
    Weight("ffn.gate_bias",     "F",   "ffn_gate.bias",        "mlp.gate_proj.bias",   when="has_ffn_bias"),
    Weight("ffn.up_bias",       "F",   "ffn_up.bias",          "mlp.up_proj.bias",     when="has_ffn_bias"),
    Weight("ffn.down_bias",     "H",   "ffn_down.bias",        "mlp.down_proj.bias",   when="has_ffn_bias"),
)  # fmt: skip
