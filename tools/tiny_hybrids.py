"""The hybrids among the tiny checkpoints: their configurations, and where their random vectors lie."""

from __future__ import annotations

from typing import Any

INTERVAL = 2  # every second layer of the Qwen models attends to all positions
WIDTHS = dict(vocab_size=96, hidden_size=32, initializer_range=0.3, bos_token_id=None, eos_token_id=None)
WIDTHS |= dict(pad_token_id=None)
ATTENTION = dict(num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256)
QWEN = WIDTHS | ATTENTION | dict(num_hidden_layers=3, intermediate_size=32, head_dim=16)
QWEN |= dict(layer_types=["linear_attention", "full_attention", "linear_attention"])
QWEN |= dict(linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=8, linear_conv_kernel_dim=4)
QWEN |= dict(rope_parameters=dict(rope_type="default", rope_theta=500.0, partial_rotary_factor=0.25))
MAMBA = dict(mamba_n_heads=8, mamba_d_head=8, mamba_d_state=12, mamba_d_conv=4, mamba_expand=2, mamba_chunk_size=16)

CONFIGS: dict[str, dict[str, Any]] = {
    "qwen3next": QWEN | dict(linear_value_head_dim=12, num_experts=0),
    "qwen35": QWEN | dict(linear_value_head_dim=8),
    "mamba2": WIDTHS
    | dict(num_hidden_layers=2, num_heads=8, head_dim=8, state_size=12, expand=2, n_groups=1, conv_kernel=4)
    | dict(chunk_size=16),
    "lfm2": WIDTHS
    | ATTENTION
    | dict(num_hidden_layers=3, layer_types=["conv", "full_attention", "conv"], conv_L_cache=3)
    | dict(intermediate_size=60, block_multiple_of=16)  # two thirds of it, up to a multiple: 48
    | dict(rope_parameters=dict(rope_type="default", rope_theta=500.0)),
    "granitehybrid": WIDTHS
    | ATTENTION
    | MAMBA
    | dict(num_hidden_layers=3, layer_types=["linear_attention", "full_attention", "linear_attention"])
    | dict(num_local_experts=0, num_experts_per_tok=0, shared_intermediate_size=40, intermediate_size=40)
    | dict(embedding_multiplier=3.0, logits_scaling=2.0, residual_multiplier=0.5, attention_multiplier=0.25)
    | dict(mamba_n_groups=1, tie_word_embeddings=True, rms_norm_eps=1e-5),
    "falcon_h1": WIDTHS
    | ATTENTION
    | MAMBA
    | dict(num_hidden_layers=2, intermediate_size=32, head_dim=8, mamba_d_ssm=48, mamba_d_head=6, mamba_n_groups=2)
    | dict(embedding_multiplier=2.5, lm_head_multiplier=0.5, key_multiplier=0.7, mlp_multipliers=[0.8, 1.3])
    | dict(attention_in_multiplier=1.2, attention_out_multiplier=0.9, ssm_in_multiplier=1.1, ssm_out_multiplier=0.6)
    | dict(ssm_multipliers=[0.7, 1.2, 0.9, 1.4, 0.6], rope_parameters=dict(rope_type="default", rope_theta=500.0)),
    "nemotron_h": WIDTHS
    | ATTENTION
    | dict(layers_block_type=["linear_attention", "mlp", "full_attention", "mlp", "linear_attention"])
    | dict(head_dim=8, intermediate_size=40, mamba_num_heads=8, mamba_head_dim=8, ssm_state_size=12, n_groups=2)
    | dict(conv_kernel=4, chunk_size=16),
}
CONFIGS["falcon_h1_norm"] = CONFIGS["falcon_h1"] | dict(
    mamba_rms_norm=True, mamba_norm_before_gate=False, num_hidden_layers=1, time_step_limit=(0.3, 1.0)
)
FAMILIES = {
    "qwen3next": "Qwen3Next",
    "qwen35": "Qwen3_5",
    "mamba2": "Mamba2",
    "lfm2": "Lfm2",
    "granitehybrid": "GraniteMoeHybrid",
    "falcon_h1": "FalconH1",
    "falcon_h1_norm": "FalconH1",
    "nemotron_h": "NemotronH",
}
GGUF_TYPES = {"falcon_h1_norm": (), "qwen3next": ("f32", "q8_0")}  # of their GGUF files, where it is not f32 alone
IS_LESS_ONE = ("Qwen3Next", "Qwen3_5", "Qwen3_5Moe")  # their norms, but for the one behind the recurrence


def centre(name: str, family: str) -> float:
    """Where a vector's random values lie: decays that remember across boundaries, and norms near 1 as they act."""
    if name.endswith("A_log"):
        return -3.0
    if name.endswith(".D"):
        return 1.0
    if "norm" in name and name.endswith(".weight"):
        return 0.0 if family in IS_LESS_ONE and not name.endswith("linear_attn.norm.weight") else 1.0
    return 0.0
