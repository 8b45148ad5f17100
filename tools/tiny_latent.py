"""Models with latent attention among the tiny checkpoints: their configurations, and their GGUF files, laid out as
llama.cpp's converter lays them out."""

from __future__ import annotations

from typing import Any

import gguf
import numpy as np
from tiny_mixtures_gguf import mixture_tensors

SIZES = dict(vocab_size=96, hidden_size=32, intermediate_size=64, num_hidden_layers=2, initializer_range=0.3)
SIZES |= dict(num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=256)
SIZES |= dict(kv_lora_rank=32, qk_nope_head_dim=32, qk_rope_head_dim=16, v_head_dim=16)
SIZES |= dict(bos_token_id=None, eos_token_id=None, pad_token_id=None)
EXPERTS = dict(n_routed_experts=8, num_experts_per_tok=3, n_group=4, topk_group=2, moe_intermediate_size=16)
YARN = dict(rope_type="yarn", rope_theta=500.0, factor=4.0, original_max_position_embeddings=64)
YARN |= dict(beta_fast=8.0, beta_slow=1.0)  # so that frequencies are kept, on the ramp, and divided

CONFIGS: dict[str, dict[str, Any]] = {
    # Two weights of YaRN's magnitude, and pairs that lie apart: GGUF files have neither.
    "deepseek_dense": dict(q_lora_rank=24, first_k_dense_replace=2, rope_interleave=False)
    | dict(rope_parameters=YARN | dict(mscale=1.5, mscale_all_dim=0.7)),
    "deepseek2": dict(q_lora_rank=None, first_k_dense_replace=1, **EXPERTS)
    | dict(topk_method="group_limited_greedy", n_shared_experts=2, routed_scaling_factor=3.0)
    | dict(rope_parameters=YARN | dict(mscale=0.7, mscale_all_dim=0.7)),
    "deepseek3": dict(q_lora_rank=32, first_k_dense_replace=1, **EXPERTS)
    | dict(n_shared_experts=1, routed_scaling_factor=1.5, num_nextn_predict_layers=0)
    | dict(rope_parameters=YARN | dict(mscale=1.0, mscale_all_dim=1.0)),
}
FAMILIES = {"deepseek_dense": "DeepseekV3", "deepseek2": "DeepseekV2", "deepseek3": "DeepseekV3"}
# "joint": as the first files were, with one tensor for the projections to keys and to values
GGUF_TYPES: dict[str, tuple[str, ...]] = {
    "deepseek_dense": (),
    "deepseek2": ("f32", "q8_0", "joint-f32", "joint-q8_0"),
    "deepseek3": ("f32",),
}
LOG_SHARE = 0.1  # the converter writes its product with mscale_all_dim


def split_up(array: np.ndarray, config: Any) -> dict[str, np.ndarray]:
    """The projections to keys, transposed, and to values, of the one tensor of both."""
    by_heads = array.reshape(config.num_attention_heads, -1, config.kv_lora_rank)
    keys, values = np.split(by_heads, [config.qk_nope_head_dim], axis=1)
    return {"attn_k_b.weight": keys.swapaxes(1, 2), "attn_v_b.weight": values}


def add_keys(writer: gguf.GGUFWriter, config: Any, is_joint: bool) -> None:
    """The metadata, as the converter writes it."""
    key_size = config.qk_nope_head_dim + config.qk_rope_head_dim
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_attention_heads if is_joint else 1)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    writer.add_leading_dense_block_count(config.first_k_dense_replace)
    if config.q_lora_rank:
        writer.add_q_lora_rank(config.q_lora_rank)
    writer.add_kv_lora_rank(config.kv_lora_rank)
    writer.add_key_length(key_size if is_joint else config.kv_lora_rank + config.qk_rope_head_dim)
    writer.add_value_length(config.v_head_dim if is_joint else config.kv_lora_rank)
    if not is_joint:
        writer.add_key_length_mla(key_size)
        writer.add_value_length_mla(config.v_head_dim)
    writer.add_expert_feed_forward_length(config.moe_intermediate_size)
    writer.add_expert_count(config.n_routed_experts)
    writer.add_expert_used_count(config.num_experts_per_tok)
    writer.add_expert_group_count(config.n_group)
    writer.add_expert_group_used_count(config.topk_group)
    writer.add_expert_shared_count(config.n_shared_experts)
    writer.add_expert_weights_scale(config.routed_scaling_factor)
    if config.model_type == "deepseek_v3":
        writer.add_expert_weights_norm(True)
        writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    rope = config.rope_parameters
    writer.add_rope_dimension_count(config.qk_rope_head_dim)
    writer.add_rope_freq_base(rope["rope_theta"])
    if rope["rope_type"] == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        writer.add_rope_scaling_yarn_beta_fast(rope["beta_fast"])
        writer.add_rope_scaling_yarn_beta_slow(rope["beta_slow"])
        writer.add_rope_scaling_yarn_log_mul(LOG_SHARE * rope["mscale_all_dim"])


def add_tensor(writer: gguf.GGUFWriter, name: str, values: np.ndarray, matrix_type: str) -> None:
    """A tensor in float32, or matrices of whole blocks in Q8_0 where that is the type."""
    values = np.ascontiguousarray(values, np.float32)
    if matrix_type == "q8_0" and values.ndim > 1 and values.shape[-1] % 32 == 0:
        kind = gguf.GGMLQuantizationType.Q8_0
        writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)
    else:
        writer.add_tensor(name, values)


def write_gguf(path: Any, model: Any, matrix_type: str) -> None:
    """The model as a GGUF file without a tokenizer."""
    config, is_joint = model.config, matrix_type.startswith("joint-")
    matrix_type = matrix_type.removeprefix("joint-")
    writer = gguf.GGUFWriter(path, "deepseek2")
    add_keys(writer, config, is_joint)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.DEEPSEEK2, config.num_hidden_layers)
    for name, tensor in model.state_dict().items():
        array = tensor.detach().numpy()
        is_split = name.endswith("kv_b_proj.weight") and not is_joint
        parts = split_up(array, config) if is_split else mixture_tensors(name, array, "")
        if parts is not None:
            for ending, values in parts.items():
                add_tensor(writer, f"blk.{name.split('.')[2]}.{ending}", values, matrix_type)
            continue
        add_tensor(writer, names.get_name(name, try_suffixes=(".weight", ".bias")), array, matrix_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
