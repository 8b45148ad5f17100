"""A GGUF of a real model's shape with random weights: `python benchmarks/random_model.py SHAPE FORMAT OUT.gguf`.

Speed depends on shapes and formats, not on values. Tensors are written one by one, so memory stays small. The
vocabulary holds the bytes and fillers: enough for every engine to load it.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import gguf
import numpy as np

from samebits.bench.random_checkpoint import plain, stored_format
from samebits.bench.random_weights import random_weight
from samebits.bench.shapes import SHAPES, architecture_of
from samebits.core.format import FORMATS, Packed
from samebits.models.parts.decoder import Decoder
from samebits.models.parts.experts import Mixture
from samebits.models.parts.recurrence import DeltaNet
from samebits.models.parts.rope import ROPE_TABLE

NAMES = ("q4_0", "q4_1", "q8_0", "q4_k", "q5_k", "q6_k", "mxfp4", "f16")
NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6  # kinds of tokens
SPECIALS = ("<unk>", "<s>", "</s>")
SPACE = "\u2581"  # how SentencePiece writes it


def add_metadata(writer: gguf.GGUFWriter, shape: Decoder) -> None:
    writer.add_context_length(shape.context_len)
    writer.add_embedding_length(shape.hidden_size)
    writer.add_block_count(shape.num_layers)
    writer.add_feed_forward_length(shape.ffn_size)
    writer.add_head_count(shape.num_heads)
    writer.add_head_count_kv(shape.num_kv_heads)
    writer.add_key_length(shape.head_size)
    writer.add_value_length(shape.head_size)
    writer.add_rope_dimension_count(shape.ropes[ROPE_TABLE].dims)
    writer.add_rope_freq_base(shape.ropes[ROPE_TABLE].theta)
    writer.add_layer_norm_rms_eps(shape.rms_eps)
    writer.add_vocab_size(shape.vocab_size)
    tokens = [*SPECIALS, *(f"<0x{byte:02X}>" for byte in range(256))]
    fillers = [SPACE, *(f"{SPACE}w{i}" for i in range(shape.vocab_size - len(tokens) - 1))]
    writer.add_tokenizer_model("llama")
    writer.add_token_list([*tokens, *fillers])
    writer.add_token_scores([0.0] * len(tokens) + [-1.0 - i for i in range(len(fillers))])
    writer.add_token_types([UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256, *[NORMAL] * len(fillers)])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)


def add_delta_net(writer: gguf.GGUFWriter, shape: Decoder, delta: DeltaNet) -> None:
    kinds = [layer.kind for layer in shape.layers]
    writer.add_full_attention_interval(kinds.index("attention") + 1)
    writer.add_rope_dimension_sections([shape.ropes[ROPE_TABLE].dims // 2, 0, 0, 0])  # positions of text alone
    writer.add_ssm_conv_kernel(delta.num_taps)
    writer.add_ssm_state_size(delta.key_size)
    writer.add_ssm_group_count(delta.num_key_heads)
    writer.add_ssm_time_step_rank(delta.num_value_heads)
    writer.add_ssm_inner_size(delta.num_value_heads * delta.value_size)


def add_experts(writer: gguf.GGUFWriter, shape: Decoder, experts: Mixture) -> None:
    writer.add_expert_count(experts.num_experts)
    writer.add_expert_used_count(experts.top_k)
    writer.add_expert_feed_forward_length(experts.expert_size)
    scaling = shape.ropes[ROPE_TABLE].scaling
    if scaling.kind == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(scaling.factor)
        writer.add_rope_scaling_orig_ctx_len(scaling.original_len)
    if window := shape.layers[0].window:
        writer.add_sliding_window(window)


def write_model(shape: Decoder, fmt: str, path: Path) -> Path:
    """Norms are ones, all else is random in the format. Written beside the target: it is there whole or not at all."""
    partial = path.with_name(f".{path.name}.part")
    architecture = architecture_of(shape)
    writer = gguf.GGUFWriter(partial, architecture.name)
    add_metadata(writer, shape)
    if isinstance(shape.recurrence, DeltaNet):
        add_delta_net(writer, shape, shape.recurrence)
    if shape.mixture is not None:
        add_experts(writer, shape, shape.mixture)
    tensors = {stored.name: (name, stored) for name, stored in architecture.tensors(shape, is_gguf=True).items()}
    for file_name, (_, tensor) in tensors.items():
        stored = stored_format(tensor, fmt)
        byte_shape = (*tensor.needed[:-1], FORMATS[stored].row_bytes(tensor.needed[-1]))
        kind = gguf.GGMLQuantizationType[stored.upper()]
        writer.add_tensor_info(file_name, byte_shape, np.dtype(np.uint8), int(np.prod(byte_shape)), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for seed, (name, tensor) in enumerate(tensors.values()):
        is_row = len(tensor.needed) == 1
        made = plain(name, tensor) if is_row else random_weight(stored_format(tensor, fmt), tensor.needed, seed)
        writer.write_tensor_data(made.data if isinstance(made, Packed) else made)
    writer.close()
    return partial.replace(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape", choices=sorted(SHAPES))
    parser.add_argument("format", choices=NAMES)
    parser.add_argument("out", type=Path)
    asked = parser.parse_args()
    write_model(SHAPES[asked.shape], asked.format, asked.out)
    print(f"{asked.out}: {asked.out.stat().st_size / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
