"""Shapes of models that random weights are made for."""

from __future__ import annotations

from samebits.models.parts.decoder import Decoder, Layer
from samebits.models.parts.rope import ROPE_TABLE, Rope


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


SHAPES = {
    "llama-7.4b": llama(32, 4096, 14336, 32, 8, 49152, 8192),
    "tinyllama-1.1b": llama(22, 2048, 5632, 32, 4, 32000, 4096),
    "smollm2-135m": llama(30, 576, 1536, 9, 3, 49152, 8192),
    "tiny": llama(2, 256, 512, 4, 2, 320, 512),
}
