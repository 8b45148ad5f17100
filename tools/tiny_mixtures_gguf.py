"""Mixtures of experts as GGUF files, laid out as llama.cpp's converter lays them out."""

from __future__ import annotations

from typing import Any

import gguf
import numpy as np

ARCHS = {
    "Mixtral": "LLAMA",
    "Qwen3Moe": "QWEN3MOE",
    "GraniteMoe": "GRANITE_MOE",
    "Glm4Moe": "GLM4_MOE",
    "GptOss": "GPT_OSS",
}
NAMES = {
    "input_layernorm.weight": "attn_norm.weight",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.sinks": "attn_sinks.weight",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
TOP = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}
TOP |= {"lm_head.weight": "output.weight"}
IS_NORMAL = ("Mixtral", "GraniteMoe")  # files of these pair rotary elements that lie side by side
EXPERTS = {"gate_up_proj": ("gate", "up"), "down_proj": ("down",)}
ROUTERS = ("mlp.gate", "mlp.router", "block_sparse_moe.router", "mixer.gate")


def mixture_tensors(name: str, array: np.ndarray, family: str) -> dict[str, np.ndarray] | None:
    """A tensor of a layer's mixture by the ending of its name in the file; None for a tensor of something else."""
    holder, _, part = name.rpartition(".")
    if holder.endswith(".experts"):
        return _experts(part, array, family)
    if part == "e_score_correction_bias":
        return {"exp_probs_b.bias": array}
    if holder.endswith(ROUTERS):
        return {f"ffn_gate_inp.{part}": array}
    if holder.endswith(".shared_expert_gate"):
        return {"ffn_gate_inp_shexp.weight": array[0]}
    if ".shared_expert" in holder:
        return {f"ffn_{holder.rpartition('.')[2].removesuffix('_proj')}_shexp.weight": array}
    return None


def _experts(part: str, array: np.ndarray, family: str) -> dict[str, np.ndarray]:
    kind = "bias" if part.endswith("_bias") else "weight"
    stem = part.removesuffix("_bias")
    if stem == "up_proj":  # experts without a gate
        return {"ffn_up_exps.weight": array}
    if family == "GptOss" and kind == "weight":
        array = array.swapaxes(1, 2)
    if stem == "down_proj":
        return {f"ffn_down_exps.{kind}": array}
    gate, up = (array[:, ::2], array[:, 1::2]) if family == "GptOss" else np.split(array, 2, axis=1)
    return {f"ffn_gate_exps.{kind}": gate, f"ffn_up_exps.{kind}": up}


def layer_tensors(name: str, array: np.ndarray, family: str, config: Any) -> dict[str, np.ndarray]:
    """A layer's tensor as the converter stores it; `name` without the layer."""
    if (found := mixture_tensors(f"layer.{name}", array, family)) is not None:
        return found
    if name == "post_attention_layernorm.weight":
        return {"post_attention_norm.weight" if family in ("Glm4Moe", "GptOss") else "ffn_norm.weight": array}
    if family in IS_NORMAL and name.endswith(("q_proj.weight", "k_proj.weight")):
        head_size = config.hidden_size // config.num_attention_heads
        order = np.arange(head_size).reshape(2, -1).T.ravel()
        array = array.reshape(-1, head_size, array.shape[1])[:, order].reshape(array.shape)
    stem = next(stem for stem in NAMES if name.startswith(stem))
    return {NAMES[stem] + name.removeprefix(stem): array}


def add_mixture_keys(writer: gguf.GGUFWriter, family: str, config: Any) -> None:
    """What the converter writes of experts."""
    counts = ("num_local_experts", "num_experts", "n_routed_experts")
    writer.add_expert_count(next(getattr(config, key) for key in counts if hasattr(config, key)))
    writer.add_expert_used_count(config.num_experts_per_tok)
    if family == "GptOss":
        writer.add_expert_feed_forward_length(config.intermediate_size)
    elif hasattr(config, "moe_intermediate_size"):
        writer.add_expert_feed_forward_length(config.moe_intermediate_size)
    shared = ("shared_expert_intermediate_size", "shared_intermediate_size", "moe_shared_expert_intermediate_size")
    if size := next((getattr(config, key) for key in shared if hasattr(config, key)), None):
        writer.add_expert_shared_feed_forward_length(size)
    if getattr(config, "moe_latent_size", None):
        writer.add_moe_latent_size(config.moe_latent_size)
    if hasattr(config, "n_group"):
        writer.add_expert_group_count(config.n_group)
        writer.add_expert_group_used_count(config.topk_group)
        writer.add_expert_shared_count(config.n_shared_experts)
        writer.add_expert_weights_scale(config.routed_scaling_factor)
        writer.add_expert_weights_norm(config.norm_topk_prob)
    if family == "Glm4Moe":
        writer.add_leading_dense_block_count(config.first_k_dense_replace)
        writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)


def add_keys(writer: gguf.GGUFWriter, family: str, config: Any) -> None:
    """The metadata of a mixture without recurrences."""
    head_size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    rope = config.rope_parameters
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(head_size)
    writer.add_value_length(head_size)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_rope_dimension_count(int(head_size * rope.get("partial_rotary_factor", 1.0)))
    writer.add_vocab_size(config.vocab_size)
    if rope["rope_type"] == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        writer.add_rope_scaling_yarn_beta_fast(rope["beta_fast"])
        writer.add_rope_scaling_yarn_beta_slow(rope["beta_slow"])
    if family == "GptOss":
        writer.add_sliding_window(config.sliding_window)
    if family == "GraniteMoe":
        writer.add_attention_scale(config.attention_multiplier)
        writer.add_embedding_scale(config.embedding_multiplier)
        writer.add_residual_scale(config.residual_multiplier)
        writer.add_logit_scale(config.logits_scaling)
    add_mixture_keys(writer, family, config)


def add_tensor(writer: gguf.GGUFWriter, name: str, values: np.ndarray, matrix_type: str) -> None:
    """A tensor in float32, or experts in MXFP4 where that is the type."""
    values = np.ascontiguousarray(values, np.float32)
    if matrix_type == "mxfp4" and name.endswith("_exps.weight"):
        kind = gguf.GGMLQuantizationType.MXFP4
        packed = gguf.quants.quantize(values, kind)
        if not np.array_equal(gguf.quants.dequantize(packed, kind), values):
            raise ValueError(f"{name}: values that MXFP4 does not hold")
        writer.add_tensor(name, packed, raw_dtype=kind)
    else:
        writer.add_tensor(name, values)


def write_gguf(path: Any, model: Any, family: str, matrix_type: str) -> None:
    """The model as a GGUF file without a tokenizer."""
    config, writer = model.config, gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[gguf.MODEL_ARCH[ARCHS[family]]])
    add_keys(writer, family, config)
    for name, tensor in model.state_dict().items():
        array = tensor.detach().numpy()
        if name in TOP:
            if name != "lm_head.weight" or not config.tie_word_embeddings:
                add_tensor(writer, TOP[name], array, matrix_type)
            continue
        _, _, layer, rest = name.split(".", 3)
        for ending, values in layer_tensors(rest, array, family, config).items():
            add_tensor(writer, f"blk.{layer}.{ending}", values, matrix_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
