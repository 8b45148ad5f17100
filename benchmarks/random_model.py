"""A GGUF of a real model's shape with random weights: `python benchmarks/random_model.py SHAPE FORMAT OUT.gguf`.

Speed depends on shapes and formats, not on values. Tensors are written one by one, so memory stays small. The
vocabulary holds the bytes and fillers: enough for every engine to load it.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import gguf
import numpy as np

from samebits.bench.random_weights import random_weight
from samebits.bench.shapes import SHAPES
from samebits.core.format import FORMATS, Packed
from samebits.models.llama import LLAMA
from samebits.models.parts.decoder import Decoder
from samebits.models.parts.rope import ROPE_TABLE

NAMES = ("q4_0", "q4_1", "q8_0", "q4_k", "q5_k", "q6_k", "f16")
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


def write_model(shape: Decoder, fmt: str, path: Path) -> Path:
    """Norms are ones, all else is random in the format. Written beside the target: it is there whole or not at all."""
    partial = path.with_name(f".{path.name}.part")
    writer = gguf.GGUFWriter(partial, "llama")
    add_metadata(writer, shape)
    tensors = {stored.name: stored.shape for stored in LLAMA.tensors(shape, is_gguf=True).values()}
    for name, size in tensors.items():
        stored = fmt if len(size) > 1 else "f32"
        byte_shape = (*size[:-1], FORMATS[stored].row_bytes(size[-1]))
        kind = gguf.GGMLQuantizationType[stored.upper()]
        writer.add_tensor_info(name, byte_shape, np.dtype(np.uint8), int(np.prod(byte_shape)), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for seed, size in enumerate(tensors.values()):
        tensor = random_weight(fmt, size, seed) if len(size) > 1 else np.ones(size, np.float32)
        writer.write_tensor_data(tensor.data if isinstance(tensor, Packed) else tensor)
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
