"""Writes small GGUF files, valid or not: every field can be given a value of its own."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from samebits.loaders.byte_level import BYTE_OF_CHAR

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
CODES = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "B", U64: "Q", I64: "q", F64: "d"}


def text(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(data)) + data


def value_bytes(kind: Any, value: Any) -> bytes:
    """`kind` is a type number, or (ARRAY, type of its items)."""
    if isinstance(kind, tuple):
        return struct.pack("<IQ", kind[1], len(value)) + b"".join(value_bytes(kind[1], v) for v in value)
    return text(value) if kind == STRING else struct.pack("<" + CODES[kind], value)


@dataclass
class Tensor:
    """`dims` in GGUF's order, contiguous first. Offset and size may be lied about."""

    name: str
    dims: tuple[int, ...]
    kind: int
    data: bytes
    offset: int | None = None


@dataclass
class File:
    metadata: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    tensors: list[Tensor] = field(default_factory=list)
    version: int = 3
    alignment: int = 32
    magic: bytes = b"GGUF"
    num_tensors: int | None = None
    num_keys: int | None = None
    extra_keys: bytes = b""

    def build(self) -> bytes:
        num_tensors = len(self.tensors) if self.num_tensors is None else self.num_tensors
        num_keys = len(self.metadata) if self.num_keys is None else self.num_keys
        head = self.magic + struct.pack("<IQQ", self.version, num_tensors, num_keys)
        for key, (kind, value) in self.metadata.items():
            number = ARRAY if isinstance(kind, tuple) else kind
            head += text(key) + struct.pack("<I", number) + value_bytes(kind, value)
        head += self.extra_keys
        data = b""
        for tensor in self.tensors:
            offset = len(data) if tensor.offset is None else tensor.offset
            head += text(tensor.name) + struct.pack(f"<I{len(tensor.dims)}Q", len(tensor.dims), *tensor.dims)
            head += struct.pack("<IQ", tensor.kind, offset)
            data += tensor.data + b"\0" * (-len(tensor.data) % self.alignment)
        return head + b"\0" * (-len(head) % self.alignment) + data

    def write(self, path: Path) -> Path:
        path.write_bytes(self.build())
        return path


SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MERGES = ("h i", "\u0120 hi", "a a", "aa aa", "e l", "l o")
TEMPLATE = "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}"


def byte_level_vocab() -> dict[str, tuple[Any, Any]]:
    """Three specials, the 256 bytes, and the joins of a few merges."""
    joins = [merge.replace(" ", "") for merge in MERGES]
    tokens = [*SPECIALS, *BYTE_OF_CHAR, *joins]
    return {
        "tokenizer.ggml.model": (STRING, "gpt2"),
        "tokenizer.ggml.pre": (STRING, "smollm"),
        "tokenizer.ggml.tokens": ((ARRAY, STRING), tokens),
        "tokenizer.ggml.token_type": ((ARRAY, I32), [3] * 3 + [1] * (len(tokens) - 3)),
        "tokenizer.ggml.merges": ((ARRAY, STRING), list(MERGES)),
        "tokenizer.ggml.bos_token_id": (U32, 1),
        "tokenizer.ggml.eos_token_id": (U32, 2),
        "tokenizer.chat_template": (STRING, TEMPLATE),
    }


def scored_vocab() -> dict[str, tuple[Any, Any]]:
    """A SentencePiece vocabulary: specials, bytes, letters and a few joins with scores."""
    joins = ["\u2581", "\u2581h", "\u2581hi", "hi", "aa", "aaa", "aaaa", "\u2581\u2581", "\u2581a"]
    letters = list("abcdefghi")
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), *joins, *letters]
    scores = [0.0] * 259 + [-float(i) for i in range(len(joins))] + [-100.0] * len(letters)
    return {
        "tokenizer.ggml.model": (STRING, "llama"),
        "tokenizer.ggml.tokens": ((ARRAY, STRING), tokens),
        "tokenizer.ggml.scores": ((ARRAY, F32), scores),
        "tokenizer.ggml.token_type": ((ARRAY, I32), [2, 3, 3] + [6] * 256 + [1] * (len(joins) + len(letters))),
    }


def tiny_model(architecture: str = "llama", vocab: dict[str, Any] | None = None, **sizes: Any) -> File:
    """A whole model of two layers, its weights f32, f16 and q8_0, every value drawn from a fixed stream."""
    vocab = byte_level_vocab() if vocab is None else vocab
    num_tokens = len(vocab["tokenizer.ggml.tokens"][1])
    a, hidden, ffn, heads, kv_heads, head = architecture, 64, 96, 4, 2, 16
    metadata = {
        "general.architecture": (STRING, a),
        f"{a}.block_count": (U32, 2),
        f"{a}.context_length": (U32, 128),
        f"{a}.embedding_length": (U32, hidden),
        f"{a}.feed_forward_length": (U32, ffn),
        f"{a}.attention.head_count": (U32, heads),
        f"{a}.attention.head_count_kv": (U32, kv_heads),
        f"{a}.attention.layer_norm_rms_epsilon": (F32, 1e-5),
        f"{a}.rope.freq_base": (F32, 10000.0),
        f"{a}.attention.key_length": (U32, head),
        f"{a}.attention.value_length": (U32, head),
    }
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (num_tokens, hidden), "output_norm.weight": (hidden,)}
    for i in range(2):
        layer: dict[str, tuple[int, ...]] = {"attn_norm.weight": (hidden,), "ffn_norm.weight": (hidden,)}
        layer |= {"attn_q.weight": (heads * head, hidden), "attn_k.weight": (kv_heads * head, hidden)}
        layer |= {"attn_v.weight": (kv_heads * head, hidden), "attn_output.weight": (hidden, heads * head)}
        layer |= {"ffn_gate.weight": (ffn, hidden), "ffn_up.weight": (ffn, hidden), "ffn_down.weight": (hidden, ffn)}
        if a == "qwen2":
            layer |= {
                "attn_q.bias": (heads * head,),
                "attn_k.bias": (kv_heads * head,),
                "attn_v.bias": (kv_heads * head,),
            }
        if a == "qwen3":
            layer |= {"attn_q_norm.weight": (head,), "attn_k_norm.weight": (head,)}
        if a == "gemma2":
            layer |= {"post_attention_norm.weight": (hidden,), "post_ffw_norm.weight": (hidden,)}
        shapes |= {f"blk.{i}.{name}": shape for name, shape in layer.items()}
    tensors = [tensor(name, shape, 8 if "ffn" in name and len(shape) == 2 else 0) for name, shape in shapes.items()]
    return File(metadata | vocab | sizes, tensors)


def tensor(name: str, shape: tuple[int, ...], kind: int = 0) -> Tensor:
    """A tensor of type f32 (0), f16 (1) or q8_0 (8) in row-major `shape`."""
    values = np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape) % 7 - 3
    if kind == 8:
        from samebits.formats import Q8_0

        data = Q8_0.pack(values).data.tobytes()
    else:
        data = values.astype(np.float16 if kind == 1 else np.float32).tobytes()
    return Tensor(name, tuple(reversed(shape)), kind, data)
