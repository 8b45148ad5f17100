"""One naming scheme for weights, and what GGUF and Hugging Face call the same tensors."""

from __future__ import annotations

from samebits.core.protocols import Hyperparameters

ARCHITECTURES = ("llama", "qwen2", "qwen3", "gemma2")

GGUF_TOP = {"embed": "token_embd.weight", "norm": "output_norm.weight", "head": "output.weight"}
GGUF_TOP["rope_freqs"] = "rope_freqs.weight"
GGUF_LAYER = {
    "attn_norm": "attn_norm.weight",
    "ffn_norm": "ffn_norm.weight",
    "post_attn_norm": "post_attention_norm.weight",
    "post_ffn_norm": "post_ffw_norm.weight",
    "attn.q": "attn_q.weight",
    "attn.k": "attn_k.weight",
    "attn.v": "attn_v.weight",
    "attn.o": "attn_output.weight",
    "attn.q_bias": "attn_q.bias",
    "attn.k_bias": "attn_k.bias",
    "attn.v_bias": "attn_v.bias",
    "attn.o_bias": "attn_output.bias",
    "attn.q_norm": "attn_q_norm.weight",
    "attn.k_norm": "attn_k_norm.weight",
    "ffn.gate": "ffn_gate.weight",
    "ffn.up": "ffn_up.weight",
    "ffn.down": "ffn_down.weight",
}

HF_TOP = {"embed": "model.embed_tokens.weight", "norm": "model.norm.weight", "head": "lm_head.weight"}
HF_LAYER = {
    "attn_norm": "input_layernorm.weight",
    "ffn_norm": "post_attention_layernorm.weight",
    "attn.q": "self_attn.q_proj.weight",
    "attn.k": "self_attn.k_proj.weight",
    "attn.v": "self_attn.v_proj.weight",
    "attn.o": "self_attn.o_proj.weight",
    "attn.q_bias": "self_attn.q_proj.bias",
    "attn.k_bias": "self_attn.k_proj.bias",
    "attn.v_bias": "self_attn.v_proj.bias",
    "attn.o_bias": "self_attn.o_proj.bias",
    "attn.q_norm": "self_attn.q_norm.weight",
    "attn.k_norm": "self_attn.k_norm.weight",
    "ffn.gate": "mlp.gate_proj.weight",
    "ffn.up": "mlp.up_proj.weight",
    "ffn.down": "mlp.down_proj.weight",
}
HF_POST_NORMS = {  # where there are four norms a layer, the second has another meaning
    "ffn_norm": "pre_feedforward_layernorm.weight",
    "post_attn_norm": "post_attention_layernorm.weight",
    "post_ffn_norm": "post_feedforward_layernorm.weight",
}


def shapes(hp: Hyperparameters) -> dict[str, tuple[int, ...]]:
    """Every tensor the model needs and its shape; "head" is left out where it is tied."""
    hidden, ffn, vocab = hp.hidden_size, hp.ffn_size, hp.vocab_size
    q_rows, kv_rows = hp.num_heads * hp.head_size, hp.num_kv_heads * hp.head_size
    layer: dict[str, tuple[int, ...]] = {
        "attn_norm": (hidden,),
        "attn.q": (q_rows, hidden),
        "attn.k": (kv_rows, hidden),
        "attn.v": (kv_rows, hidden),
        "attn.o": (hidden, q_rows),
        "ffn_norm": (hidden,),
        "ffn.gate": (ffn, hidden),
        "ffn.up": (ffn, hidden),
        "ffn.down": (hidden, ffn),
    }
    if hp.has_qkv_bias:
        layer |= {"attn.q_bias": (q_rows,), "attn.k_bias": (kv_rows,), "attn.v_bias": (kv_rows,)}
    if hp.has_out_bias:
        layer |= {"attn.o_bias": (hidden,)}
    if hp.has_qk_norm:
        layer |= {"attn.q_norm": (hp.head_size,), "attn.k_norm": (hp.head_size,)}
    if hp.has_post_norms:
        layer |= {"post_attn_norm": (hidden,), "post_ffn_norm": (hidden,)}
    needed: dict[str, tuple[int, ...]] = {"embed": (vocab, hidden), "norm": (hidden,)}
    if not hp.tie_embeddings:
        needed["head"] = (vocab, hidden)
    if hp.rope_scaling.kind == "factors":
        needed["rope_freqs"] = (hp.rotary_dims // 2,)
    for i in range(hp.num_layers):
        needed |= {f"layers.{i}.{name}": shape for name, shape in layer.items()}
    return needed


def gguf_name(name: str) -> str:
    """The GGUF tensor behind one of our names; KeyError for a name we do not have."""
    if not name.startswith("layers."):
        return GGUF_TOP[name]
    _, layer, part = name.split(".", 2)
    return f"blk.{layer}.{GGUF_LAYER[part]}"


def hf_name(name: str, has_post_norms: bool) -> str:
    """The Hugging Face tensor behind one of our names; KeyError for a name we do not have."""
    if not name.startswith("layers."):
        return HF_TOP[name]
    _, layer, part = name.split(".", 2)
    parts = HF_LAYER | HF_POST_NORMS if has_post_norms else HF_LAYER
    return f"model.layers.{layer}.{parts[part]}"
