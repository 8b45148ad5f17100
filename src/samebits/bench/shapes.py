"""Shapes of models that random weights are made for."""

from __future__ import annotations

from dataclasses import replace

from samebits.models.architecture import Architecture
from samebits.models.gpt_oss import GPT_OSS
from samebits.models.llama import LLAMA
from samebits.models.parts.decoder import Decoder, Layer
from samebits.models.parts.experts import Mixture
from samebits.models.parts.hybrid import layers_of
from samebits.models.parts.mixture import with_experts
from samebits.models.parts.recurrence import DeltaNet
from samebits.models.parts.rope import ROPE_TABLE, Rope, Scaling, yarn_magnitude
from samebits.models.qwen3moe import QWEN3MOE
from samebits.models.qwen35 import QWEN35


def llama(num_layers: int, hidden: int, ffn: int, heads: int, kv_heads: int, vocab: int, context: int) -> Decoder:
    """A llama with an untied head."""
    head = hidden // heads
    return Decoder(
        num_layers=num_layers,
        hidden_size=hidden,
        ffn_size=ffn,
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_size=head,
        vocab_size=vocab,
        context_len=context,
        rms_eps=1e-5,
        ropes={ROPE_TABLE: Rope(10000.0, head)},
        layers=(Layer(),) * num_layers,
        rope_is_interleaved=True,
        query_scalar=float(head),
    )


def hybrid(config: Decoder, delta: DeltaNet, period: int = 4) -> Decoder:
    """The same sizes, with attention in every `period`-th layer and gated delta nets in the others."""
    kinds = ["recurrence" if (i + 1) % period else "attention" for i in range(config.num_layers)]
    rope = replace(config.ropes[ROPE_TABLE], dims=config.head_size // 4)
    layers = layers_of(kinds, ROPE_TABLE)
    return replace(config, layers=layers, ropes={ROPE_TABLE: rope}, recurrence=delta, rope_is_interleaved=False)


def mixture(config: Decoder, experts: Mixture) -> Decoder:
    """The same sizes, with experts in place of all feed-forward parts."""
    return replace(config, layers=with_experts(config.layers, experts), mixture=experts, ffn_size=experts.expert_size)


def with_heads(config: Decoder, size: int, rope: Rope) -> Decoder:
    """The same with heads of another size, and with rotary pairs half a head apart."""
    ropes = {ROPE_TABLE: rope}
    return replace(config, head_size=size, query_scalar=float(size), ropes=ropes, rope_is_interleaved=False)


def qwen3_30b_a3b() -> Decoder:
    sizes = with_heads(llama(48, 2048, 6144, 32, 4, 151936, 40960), 128, Rope(1e6, 128))
    return mixture(replace(sizes, rms_eps=1e-6), Mixture(128, 8, 768))


def gpt_oss_20b() -> Decoder:
    yarn = Scaling("yarn", 32.0, 4096, is_truncated=False, magnitude=yarn_magnitude(32.0))
    sizes = with_heads(llama(24, 2880, 2880, 64, 8, 201088, 131072), 64, Rope(150000.0, 64, yarn))
    sizes = replace(sizes, layers=(Layer(128), Layer()) * 12, has_qkv_bias=True, has_out_bias=True)
    experts = Mixture(32, 4, 2880, scores="chosen", is_normalized=False, has_bias=True, limit=7.0)
    return mixture(sizes, experts)


def architecture_of(config: Decoder) -> Architecture:
    """What a shape is built as."""
    if config.recurrence is not None:
        return QWEN35
    if config.mixture is None or config.rope_is_interleaved:
        return LLAMA
    return GPT_OSS if config.mixture.has_bias else QWEN3MOE


WIDE = llama(48, 2048, 18432, 16, 2, 151936, 8192)
NEXT = replace(WIDE, head_size=256, query_scalar=256.0)  # Qwen3-Next's layers, with dense feed-forward parts
SMALL = llama(32, 576, 1536, 9, 3, 49152, 8192)
SMALL_DELTA = DeltaNet(num_key_heads=4, num_value_heads=8, key_size=64, value_size=64, num_taps=4, is_tiled=True)
SHAPES = {
    "llama-7.4b": llama(32, 4096, 14336, 32, 8, 49152, 8192),
    "tinyllama-1.1b": llama(22, 2048, 5632, 32, 4, 32000, 4096),
    "smollm2-135m": llama(30, 576, 1536, 9, 3, 49152, 8192),
    "tiny": llama(2, 256, 512, 4, 2, 320, 512),
    "hybrid-7b": hybrid(NEXT, DeltaNet(16, 32, 128, 128, 4, is_tiled=True)),
    "hybrid-135m": hybrid(SMALL, SMALL_DELTA),
    "hybrid-135m-attention": hybrid(SMALL, SMALL_DELTA, period=1),
    "qwen3-30b-a3b": qwen3_30b_a3b(),
    "gpt-oss-20b": gpt_oss_20b(),
    "moe-8x-576": mixture(llama(30, 576, 1536, 9, 3, 49152, 8192), Mixture(8, 2, 1536)),
    "tiny-moe": mixture(llama(2, 256, 256, 4, 2, 320, 512), Mixture(8, 2, 256)),
    "tiny-hybrid": hybrid(llama(4, 256, 512, 4, 2, 320, 512), replace(SMALL_DELTA, key_size=32, value_size=32)),
}
