"""Hybrids as GGUF files, laid out as llama.cpp's converter lays them out."""

from __future__ import annotations

from typing import Any

import gguf
import numpy as np
from tiny_hybrids import INTERVAL, IS_LESS_ONE
from tiny_mixtures_gguf import add_mixture_keys, mixture_tensors

ARCHS = {
    "Qwen3Next": "QWEN3NEXT",
    "Qwen3_5": "QWEN35",
    "Qwen3_5Moe": "QWEN35MOE",
    "Mamba2": "MAMBA2",
    "Lfm2": "LFM2",
    "GraniteMoeHybrid": "GRANITE_HYBRID",
    "FalconH1": "FALCON_H1",
    "NemotronH": "NEMOTRON_H",
}


def has_experts(family: str, config: Any) -> bool:
    """Whether a model of a family that may be dense has a mixture."""
    if family == "NemotronH":
        return "moe" in config.layer_types
    return bool(getattr(config, "num_local_experts", 0) or getattr(config, "num_experts", 0))


def arch_of(model: Any, family: str) -> gguf.MODEL_ARCH:
    is_other = family == "NemotronH" and has_experts(family, model.config)
    return gguf.MODEL_ARCH["NEMOTRON_H_MOE" if is_other else ARCHS[family]]


def tiled(array: np.ndarray, config: Any, head_size: int, axis: int = 0) -> np.ndarray:
    """V heads as qwen35 files have them: head h belongs to key head h % nk, not h // (nv / nk)."""
    num_keys, num_each = config.linear_num_key_heads, config.linear_num_value_heads // config.linear_num_key_heads
    order = np.arange(num_keys * num_each * head_size).reshape(num_keys, num_each, head_size)
    return np.take(array, order.swapaxes(0, 1).ravel(), axis)


def qwen_tensors(name: str, array: np.ndarray, family: str, config: Any) -> dict[str, np.ndarray]:
    """One tensor of a layer by the ending of its name in the file."""
    num_keys, num_each = config.linear_num_key_heads, config.linear_num_value_heads // config.linear_num_key_heads
    key, value = config.linear_key_head_dim, config.linear_value_head_dim
    qk = 2 * num_keys * key
    is_tiled = family.startswith("Qwen3_5")
    if name.endswith("in_proj_qkvz"):  # by key heads: query, key, values, gates
        parts = np.split(array.reshape(num_keys, -1, array.shape[1]), np.cumsum([key, key, num_each * value]), axis=1)
        q, k, v, z = (part.reshape(-1, array.shape[1]) for part in parts)
        return {"attn_qkv.weight": np.concatenate([q, k, v]), "attn_gate.weight": z}
    if name.endswith(("in_proj_qkv", "conv1d")):
        array = array.reshape(len(array), -1)
        values = tiled(array[qk:], config, value) if is_tiled else array[qk:]
        file = "attn_qkv.weight" if name.endswith("qkv") else "ssm_conv1d.weight"
        return {file: np.concatenate([array[:qk], values])}
    if name.endswith("out_proj"):
        return {"ssm_out.weight": tiled(array, config, value, axis=1) if is_tiled else array}
    files = {"in_proj_z": ("attn_gate.weight", value), "in_proj_b": ("ssm_beta.weight", 1), "A_log": ("ssm_a", 1)}
    files |= {"in_proj_a": ("ssm_alpha.weight", 1), "dt_bias": ("ssm_dt.bias", 1)}
    file, head_size = files[name.rpartition(".")[2]]
    array = -np.exp(array) if name.endswith("A_log") else array
    return {file: tiled(array, config, head_size) if is_tiled else array}


def ssm_tensors(name: str, array: np.ndarray, num_groups: int) -> dict[str, np.ndarray] | None:
    """The same of a Mamba-2 layer; None for one that is stored as it is."""
    ending = name.rpartition(".")[2]
    if ending in ("A_log", "D"):
        return {"ssm_a" if ending == "A_log" else "ssm_d": (-np.exp(array) if ending == "A_log" else array)[:, None]}
    if name.endswith("dt_bias"):
        return {"ssm_dt.bias": array}
    if name.endswith("conv1d.weight"):
        return {"ssm_conv1d.weight": array[:, 0]}
    if name.endswith(("mixer.norm.weight", "mamba.norm.weight")):
        return {"ssm_norm.weight": array.reshape(num_groups, -1)}
    return None


def falcon_factors(config: Any) -> dict[str, Any]:
    """What the converter multiplies matrices by; GGUF has no keys for it."""
    inner, states = config.mamba_d_ssm, config.mamba_n_groups * config.mamba_d_state
    rows = np.repeat(config.ssm_multipliers, [inner, inner, states, states, config.mamba_n_heads])
    heard = config.attention_in_multiplier
    return {
        "embed_tokens": config.embedding_multiplier,
        "lm_head": config.lm_head_multiplier,
        "q_proj": heard,
        "k_proj": heard * config.key_multiplier,
        "v_proj": heard,
        "o_proj": config.attention_out_multiplier,
        "in_proj": (config.ssm_in_multiplier * rows)[:, None],
        "out_proj": config.ssm_out_multiplier,
        "gate_proj": config.mlp_multipliers[0],
        "down_proj": config.mlp_multipliers[1],
    }


def layer_tensors(name: str, array: np.ndarray, family: str, config: Any) -> dict[str, np.ndarray] | None:
    """A layer's tensor as the converter stores it, by the endings of names; None where only its name changes."""
    if has_experts(family, config) and (found := mixture_tensors(name, array, family)) is not None:
        return found
    if "linear_attn." in name and not name.endswith("linear_attn.norm.weight"):
        if name.endswith("in_proj_ba.weight"):
            return {"ssm_ba.weight": array}
        return qwen_tensors(name.removesuffix(".weight"), array, family, config)
    if name.endswith("conv.conv.weight"):
        return {"shortconv.conv.weight": array[:, 0]}
    if family == "GraniteMoeHybrid" and name.endswith(("q_proj.weight", "k_proj.weight")):  # pairs side by side
        head_size = config.hidden_size // config.num_attention_heads
        order = np.arange(head_size).reshape(2, -1).T.ravel()
        return {
            f"attn_{name.split('.')[-2][0]}.weight": array.reshape(-1, head_size, array.shape[1])[:, order].reshape(
                array.shape
            )
        }
    ending = "_shexp.weight" if has_experts(family, config) else ".weight"
    if name.endswith("shared_mlp.input_linear.weight"):
        gate, up = np.split(array, 2)
        return {f"ffn_gate{ending}": gate, f"ffn_up{ending}": up}
    if name.endswith("shared_mlp.output_linear.weight"):
        return {f"ffn_down{ending}": array}
    if family == "Qwen3Next" and ".mlp." in name:  # files of this kind have mixtures; dense ones are named like others
        return {f"ffn_{name.split('.')[-2].removesuffix('_proj')}.weight": array}
    groups = getattr(config, "mamba_n_groups", None) or getattr(config, "n_groups", 1)
    return ssm_tensors(name, array, groups)


def add_keys(writer: gguf.GGUFWriter, family: str, config: Any) -> None:
    """The metadata of a hybrid, as the converter writes it."""
    is_attention = [kind in ("full_attention", "hybrid") for kind in config.layer_types]
    writer.add_context_length(getattr(config, "max_position_embeddings", 1 << 20))
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_vocab_size(config.vocab_size)
    eps = next(
        getattr(config, key) for key in ("rms_norm_eps", "layer_norm_epsilon", "norm_eps") if hasattr(config, key)
    )
    writer.add_layer_norm_rms_eps(eps)
    if family == "Mamba2":
        writer.add_feed_forward_length(0)
        writer.add_head_count(0)
    else:
        writer.add_head_count(config.num_attention_heads)
        by_layer = family in ("Lfm2", "GraniteMoeHybrid", "NemotronH")
        heads = config.num_key_value_heads
        writer.add_head_count_kv([heads * is_one for is_one in is_attention] if by_layer else heads)
        add_ffn_size(writer, family, config)
    if getattr(config, "head_dim", None) and family != "Mamba2":
        writer.add_key_length(config.head_dim)
        writer.add_value_length(config.head_dim)
    if family not in ("Mamba2", "GraniteMoeHybrid", "NemotronH"):
        writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    add_recurrence(writer, family, config)
    if has_experts(family, config):
        add_mixture_keys(writer, family, config)


def add_ffn_size(writer: gguf.GGUFWriter, family: str, config: Any) -> None:
    if family == "Lfm2":
        writer.add_feed_forward_length(48)
    elif family == "GraniteMoeHybrid" and not has_experts(family, config):
        writer.add_feed_forward_length(config.shared_intermediate_size)
    elif family == "NemotronH":
        sizes = {"mlp": config.intermediate_size, "moe": config.moe_intermediate_size}
        writer.add_feed_forward_length([sizes.get(kind, 0) for kind in config.layer_types])
    elif family != "Qwen3_5Moe":  # whose configuration states none
        writer.add_feed_forward_length(config.intermediate_size)


def add_recurrence(writer: gguf.GGUFWriter, family: str, config: Any) -> None:
    if family == "Lfm2":
        writer.add_shortconv_l_cache(config.conv_L_cache)
        return
    if family in IS_LESS_ONE:
        num_heads = config.linear_num_value_heads
        sizes = (config.linear_conv_kernel_dim, config.linear_key_head_dim, config.linear_num_key_heads)
        inner = num_heads * config.linear_value_head_dim
        writer.add_full_attention_interval(INTERVAL)
        writer.add_rope_dimension_count(config.head_dim // 4)
        if family.startswith("Qwen3_5"):
            writer.add_rope_dimension_sections([11, 11, 10, 0])
    elif family in ("Mamba2", "NemotronH"):
        num_heads = getattr(config, "mamba_num_heads", None) or config.num_heads
        sizes = (config.conv_kernel, getattr(config, "ssm_state_size", None) or config.state_size, config.n_groups)
        inner = num_heads * (getattr(config, "mamba_head_dim", None) or config.head_dim)
    else:
        num_heads = config.mamba_n_heads
        sizes = (config.mamba_d_conv, config.mamba_d_state, config.mamba_n_groups)
        inner = num_heads * config.mamba_d_head
    writer.add_ssm_conv_kernel(sizes[0])
    writer.add_ssm_state_size(sizes[1])
    writer.add_ssm_group_count(sizes[2])
    writer.add_ssm_time_step_rank(num_heads)
    writer.add_ssm_inner_size(inner)
    if family == "GraniteMoeHybrid":
        writer.add_attention_scale(config.attention_multiplier)
        writer.add_embedding_scale(config.embedding_multiplier)
        writer.add_residual_scale(config.residual_multiplier)
        writer.add_logit_scale(config.logits_scaling)
        writer.add_rope_scaling_finetuned(False)


def add_tensor(writer: gguf.GGUFWriter, name: str, values: np.ndarray, matrix_type: str) -> None:
    """A tensor in float32, or a matrix of whole blocks in Q8_0 where that is the type."""
    if matrix_type == "q8_0" and values.ndim == 2 and values.shape[1] % 32 == 0:
        kind = gguf.GGMLQuantizationType.Q8_0
        writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)
    else:
        writer.add_tensor(name, np.ascontiguousarray(values, np.float32))


def add_tensors(writer: gguf.GGUFWriter, model: Any, family: str, matrix_type: str) -> None:
    """Every tensor, named by gguf-py's own map where only its name changes."""
    config, names = model.config, gguf.get_tensor_name_map(arch_of(model, family), model.config.num_hidden_layers)
    factors = falcon_factors(config) if family == "FalconH1" else {}
    biases = [(n, b) for n, b in model.named_buffers() if n.endswith("e_score_correction_bias")]
    for name, parameter in [*model.named_parameters(), *biases]:
        array = parameter.detach().numpy()
        if family in IS_LESS_ONE and name.endswith("norm.weight") and not name.endswith("linear_attn.norm.weight"):
            array = array + np.float32(1)
        part = name.split(".")[-2]
        array = (array * factors.get(part, 1.0)).astype(np.float32)
        layer = name.split(".layers.")[1].split(".")[0] if ".layers." in name else ""
        stored = layer_tensors(name, array, family, config) if layer else None
        if stored is not None:
            for ending, values in stored.items():
                add_tensor(writer, f"blk.{layer}.{ending}", values, matrix_type)
            continue
        name = name.replace("model.", "backbone.", 1) if family == "NemotronH" else name  # as its first files have it
        renamed = names.get_name(name, try_suffixes=(".weight", ".bias"))
        if renamed is None:
            raise ValueError(f"{name}: gguf has no name for it")
        add_tensor(writer, renamed, array, matrix_type)


def write_gguf(path: Any, model: Any, family: str, matrix_type: str) -> None:
    """The model as a GGUF file without a tokenizer."""
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[arch_of(model, family)])
    add_keys(writer, family, model.config)
    add_tensors(writer, model, family, matrix_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
