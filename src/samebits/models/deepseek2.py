"""DeepSeek-V2 and V3, with what others build in their way: latent attention, the first layers dense, then mixtures."""

from __future__ import annotations

from dataclasses import replace

from samebits.loaders.fields import Fields
from samebits.models.architecture import Architecture
from samebits.models.parts import tensors as t
from samebits.models.parts.builder import ModelParts, StepGraph
from samebits.models.parts.decoder import KEYS, Decoder, activation, read_decoder
from samebits.models.parts.keys import MAX_LAYERS, Source, whole
from samebits.models.parts.latent import Latent, read_latent
from samebits.models.parts.latent_attention import TENSORS, latent_attention
from samebits.models.parts.rope import ROPE_TABLE, Rope, read_rope, yarn_magnitude

LOG_SHARE = 0.1  # of a logarithm in YaRN's magnitude; GGUF stores the product of both factors

#                            GGUF                        Hugging Face             bounds         where it is absent
DEEPSEEK_KEYS = {name: key for name, key in KEYS.items() if name not in ("num_kv_heads", "head_size")} | {
    "num_dense":      whole("leading_dense_block_count", "first_k_dense_replace", 0, MAX_LAYERS, 0),
}  # fmt: skip


def read(source: Source) -> Decoder:
    """Heads share one row per token, so that there is one head of keys."""
    source.refuse(None, "attention_bias", "false: biases of projections are not supported")
    latent, values = read_latent(source), source.values(DEEPSEEK_KEYS)
    rope, score_factor = _rotation(source, latent, values["context_len"])
    num_dense = values.pop("num_dense")
    if num_dense < values["num_layers"]:
        raise source.fail("dense layers", num_dense, f"all {values['num_layers']}: mixtures are not supported")
    return read_decoder(
        source,
        values | {"num_kv_heads": 1, "head_size": latent.key_size},
        latent=latent,
        ropes={ROPE_TABLE: rope},
        rope_is_interleaved=source.is_gguf or source.flag("rope_interleave", True),
        query_scalar=latent.key_size / score_factor**2,
        activation=activation(source, "hidden_act", default="silu"),
        has_qkv_bias=False,
        has_out_bias=False,
    )


def _rotation(source: Source, latent: Latent, context_len: int) -> tuple[Rope, float]:
    """The rotation, and what scores are multiplied by beside it: YaRN's magnitude acts on all of a head, not only on
    its rotated part. GGUF files state that one alone; the rotated part has no other then."""
    rope = read_rope(source, latent.rotary_size, context_len)
    if rope.scaling.kind != "yarn":
        return rope, 1.0
    weight = _stated_weight(source)
    if not weight:
        return rope, 1.0
    if source.is_gguf:
        rope = replace(rope, scaling=replace(rope.scaling, magnitude=1.0))
    return rope, yarn_magnitude(rope.scaling.factor, weight) ** 2


def _stated_weight(source: Source) -> float:
    """Of the logarithm in the magnitude of scores; 0 where a file has none."""
    if source.is_gguf:
        return float(source.fields.number("rope.scaling.yarn_log_multiplier", 0.0, 1e3, 0.0)) / LOG_SHARE
    fields: Fields = source.fields
    rope = fields.mapping("rope_parameters" if fields.has("rope_parameters") else "rope_scaling")
    return float(rope.number("mscale_all_dim", 0.0, 1e3, 0.0))


def build(m: ModelParts) -> StepGraph:
    """Latent attention and a gated FFN, each added to the residual stream."""
    h = m.embed()
    for layer in range(m.config.num_layers):
        h = m.b.add(h, latent_attention(m, m.norm(h, f"layers.{layer}.attn_norm"), layer))
        h = m.b.add(h, m.gated_ffn(m.norm(h, f"layers.{layer}.ffn_norm"), layer))
    return m.finish(h)


LAYER = (*t.NORMS, *TENSORS, *t.FFN)
DEEPSEEK2 = Architecture("deepseek2", ("deepseek_v2", "DeepseekV2ForCausalLM"), read, t.TOP, LAYER, build)
DEEPSEEK3 = Architecture("deepseek3", ("deepseek_v3", "DeepseekV3ForCausalLM"), read, t.TOP, LAYER, build)
