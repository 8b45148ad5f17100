"""The mixtures of experts among the tiny checkpoints: their configurations, and what is random in them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from tiny_hybrids import ATTENTION, MAMBA, QWEN, WIDTHS

PLAIN = WIDTHS | ATTENTION | dict(num_hidden_layers=2)
ROPE = dict(rope_parameters=dict(rope_type="default", rope_theta=500.0))
GROUPS = dict(n_group=4, topk_group=2, n_routed_experts=8, num_experts_per_tok=3, routed_scaling_factor=1.5)
YARN = dict(rope_type="yarn", rope_theta=500.0, factor=4.0, original_max_position_embeddings=64)
YARN |= dict(beta_fast=8.0, beta_slow=1.0, truncate=False)  # neither end of the ramp is whole
MULTIPLIERS = dict(embedding_multiplier=3.0, logits_scaling=2.0, residual_multiplier=0.5, attention_multiplier=0.25)
TWO = dict(num_hidden_layers=2, layer_types=["linear_attention", "full_attention"])
SHARED = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=12, shared_expert_intermediate_size=20)

CONFIGS: dict[str, dict[str, Any]] = {
    "mixtral": PLAIN | ROPE | dict(num_local_experts=4, num_experts_per_tok=2, intermediate_size=20),
    "qwen3moe": PLAIN
    | ROPE
    | dict(num_experts=8, num_experts_per_tok=3, moe_intermediate_size=12, intermediate_size=24, head_dim=12)
    | dict(norm_topk_prob=True),
    "qwen3moe_mixed": PLAIN
    | ROPE
    | dict(num_hidden_layers=3, mlp_only_layers=[1], norm_topk_prob=False)
    | dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=12, intermediate_size=24, head_dim=8),
    "granitemoe": PLAIN
    | ROPE
    | MULTIPLIERS
    | dict(num_local_experts=4, num_experts_per_tok=2, intermediate_size=20, tie_word_embeddings=True),
    "glm4moe": PLAIN
    | GROUPS
    | dict(num_hidden_layers=3, first_k_dense_replace=1, n_shared_experts=2, moe_intermediate_size=8)
    | dict(intermediate_size=24, head_dim=8, attention_bias=True, use_qk_norm=True, num_nextn_predict_layers=0)
    | dict(rope_parameters=dict(rope_type="default", rope_theta=500.0, partial_rotary_factor=0.5)),
    "gpt_oss": PLAIN
    | dict(num_local_experts=4, num_experts_per_tok=2, intermediate_size=32, head_dim=8, sliding_window=9)
    | dict(rope_parameters=YARN),
    "qwen3next_moe": QWEN | TWO | SHARED | dict(linear_value_head_dim=12, norm_topk_prob=True),
    "qwen35moe": QWEN | TWO | SHARED | dict(linear_value_head_dim=8),
    "granitehybrid_moe": WIDTHS
    | ATTENTION
    | MAMBA
    | MULTIPLIERS
    | TWO
    | dict(mamba_n_groups=1)
    | dict(num_local_experts=4, num_experts_per_tok=2, shared_intermediate_size=20, intermediate_size=12)
    | dict(tie_word_embeddings=True),
    "nemotron_h_moe": WIDTHS
    | ATTENTION
    | GROUPS
    | dict(layers_block_type=["linear_attention", "moe", "full_attention", "moe"], head_dim=8, intermediate_size=24)
    | dict(moe_intermediate_size=12, moe_shared_expert_intermediate_size=20, n_shared_experts=1)
    | dict(mamba_num_heads=8, mamba_head_dim=8, ssm_state_size=12, n_groups=2, conv_kernel=4, chunk_size=16),
}
CONFIGS["nemotron_h_latent"] = CONFIGS["nemotron_h_moe"] | dict(
    layers_block_type=["linear_attention", "moe"], moe_latent_size=16, n_group=1, topk_group=1
)
FAMILIES = {
    "mixtral": "Mixtral",
    "qwen3moe": "Qwen3Moe",
    "qwen3moe_mixed": "Qwen3Moe",
    "granitemoe": "GraniteMoe",
    "glm4moe": "Glm4Moe",
    "gpt_oss": "GptOss",
    "qwen3next_moe": "Qwen3Next",
    "qwen35moe": "Qwen3_5Moe",
    "granitehybrid_moe": "GraniteMoeHybrid",
    "nemotron_h_moe": "NemotronH",
    "nemotron_h_latent": "NemotronH",
}
HYBRIDS = ("qwen3next_moe", "qwen35moe", "granitehybrid_moe", "nemotron_h_moe", "nemotron_h_latent")
GGUF_TYPES = {"qwen3moe_mixed": (), "gpt_oss": ("f32", "mxfp4")}  # of their GGUF files, where it is not f32 alone
CODES = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)  # of MXFP4, each with a sign


def draw(model: Any, family: str) -> None:
    """Makes random what starts as zeros beside vectors; gpt-oss's experts exact in MXFP4 and wide enough to clamp."""
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if name.endswith(("e_score_correction_bias", "_proj_bias")):
                tensor.copy_(0.3 * torch.randn_like(tensor))
            if family == "GptOss" and name.endswith(("experts.gate_up_proj", "experts.down_proj")):
                tensor.copy_(in_mxfp4(tensor))


def in_mxfp4(matrices: torch.Tensor) -> torch.Tensor:
    """Random [experts, in, out] whose blocks of 32 along `in` are codes times a power of two."""
    num_experts, num_in, num_out = matrices.shape
    blocks = (num_experts, num_in // 32, 32, num_out)
    codes = torch.from_numpy(CODES)[torch.randint(8, blocks)] * (2 * torch.randint(2, blocks) - 1)
    scales = 2.0 ** torch.randint(-3, 0, (num_experts, num_in // 32, 1, num_out))
    return (codes * scales).reshape(matrices.shape)
