"""LFM2: short gated convolutions, and attention in some layers."""

from __future__ import annotations

from samebits.models.architecture import Architecture, Weight
from samebits.models.parts import conv
from samebits.models.parts.builder import ModelParts, StepGraph
from samebits.models.parts.decoder import KEYS, Decoder, read_decoder, rotary_dims
from samebits.models.parts.hybrid import by_layer, layers_of, stated_kinds
from samebits.models.parts.ignored import OFF, ON, WITHOUT_BIASES, Ignored, words
from samebits.models.parts.keys import MAX_HEADS, MAX_TAPS, MAX_WIDTH, REQUIRED, Source, number, whole
from samebits.models.parts.recurrence import ShortConv
from samebits.models.parts.rope import ROPE_TABLE, HfRotation, read_rope

ROTATION = HfRotation(theta=1e6)

#                            GGUF                                Hugging Face           bounds        where absent
LFM2_KEYS = KEYS | {
    "num_kv_heads":   whole(None,                                "num_key_value_heads", 1, MAX_HEADS, 8,
                            gguf_default=1),
    "rms_eps":        number("attention.layer_norm_rms_epsilon", "norm_eps",            1e-12, 1.0, 1e-5,
                             gguf_default=REQUIRED),
    "num_taps":       whole("shortconv.l_cache",                 "conv_L_cache",        2, MAX_TAPS, 3,
                            gguf_default=REQUIRED),
}  # fmt: skip
TOP = (
    Weight("embed",       "V H", "token_embd",      "model.embed_tokens"),
    Weight("norm",        "H",   "token_embd_norm", "model.embedding_norm"),
    Weight("head",        "V H", "output",          "lm_head", when="has_head"),
)  # fmt: skip
LAYER = (
    Weight("attn_norm",   "H",   "attn_norm",       "operator_norm"),
    Weight("ffn_norm",    "H",   "ffn_norm",        "ffn_norm"),
    Weight("ffn.gate",    "F H", "ffn_gate",        "feed_forward.w1"),
    Weight("ffn.up",      "F H", "ffn_up",          "feed_forward.w3"),
    Weight("ffn.down",    "H F", "ffn_down",        "feed_forward.w2"),
)  # fmt: skip
ATTENTION = (
    Weight("attn.q",      "Q H", "attn_q",          "self_attn.q_proj"),
    Weight("attn.k",      "K H", "attn_k",          "self_attn.k_proj"),
    Weight("attn.v",      "K H", "attn_v",          "self_attn.v_proj"),
    Weight("attn.o",      "H Q", "attn_output",     "self_attn.out_proj"),
    Weight("attn.q_norm", "D",   "attn_q_norm",     "self_attn.q_layernorm"),
    Weight("attn.k_norm", "D",   "attn_k_norm",     "self_attn.k_layernorm"),
)  # fmt: skip


def read(source: Source) -> Decoder:
    source.refuse(None, "conv_bias", "false: biases of convolutions are not supported")
    source.refuse("attention.sliding_window", None, "0: windows are not supported in this architecture")
    values = source.values(LFM2_KEYS)
    source.refuse("rope.dimension_count", None, f"the head size, {values['head_size']}", values["head_size"])
    taps, num_layers, head_size = values.pop("num_taps"), values["num_layers"], values["head_size"]
    if source.is_gguf:
        heads = by_layer(source, "attention.head_count_kv", num_layers, MAX_HEADS)
        values["num_kv_heads"], kinds = max(*heads, 1), ["attention" if n else "recurrence" for n in heads]
    else:
        values["ffn_size"] = _ffn_size(source, values["ffn_size"])
        kinds = stated_kinds(source, "layer_types", num_layers) or _listed(source, num_layers)
    is_tied = source.is_gguf or source.flag("tie_embedding", True)
    rope = read_rope(source, rotary_dims(source, head_size), values["context_len"], ROTATION)
    _check_theta(source, rope.theta)
    return read_decoder(
        source,
        values,
        layers=layers_of(kinds, ROPE_TABLE),
        ropes={ROPE_TABLE: rope},
        recurrence=ShortConv(taps),
        is_tied=is_tied,
    )


def _check_theta(source: Source, read: float) -> None:
    """Raise BadInput if a config.json states another base of the rotation under the key of LiquidAI's first files."""
    stated = None if source.is_gguf else source.fields.number("theta", 1.0, 1e12, read)
    if stated not in (None, read):
        needed = f"{read:g} as in rope_theta: versions of transformers differ in which one they take"
        raise source.fields.fail("theta", stated, needed)


def _listed(source: Source, num_layers: int) -> list[str]:
    """The first config.json files list the layers that attend; without a list all do."""
    indices = source.fields.get("full_attn_idxs")
    if indices is None:
        return ["attention"] * num_layers
    if not isinstance(indices, list) or any(type(i) is not int or not 0 <= i < num_layers for i in indices):
        raise source.fields.fail("full_attn_idxs", indices, f"layers from 0 to {num_layers - 1}")
    return ["attention" if i in indices else "recurrence" for i in range(num_layers)]


def _ffn_size(source: Source, stated: int) -> int:
    """A config.json states what two thirds are taken of, and a multiple to round up to."""
    fields = source.fields
    stated = fields.integer("block_ff_dim", 1, MAX_WIDTH, stated)
    if not fields.flag("block_auto_adjust_ff_dim", True):
        return stated
    size = int(fields.number("block_ffn_dim_multiplier", 1e-3, 1e3, 1.0) * int(2 * stated / 3))
    multiple = fields.integer("block_multiple_of", 1, MAX_WIDTH, 256)
    return -(-size // multiple) * multiple


def build(m: ModelParts) -> StepGraph:
    """Attention or a convolution, and a gated FFN, each added to the residual stream."""
    h = m.embed()
    for i, layer in enumerate(m.config.layers):
        x = m.norm(h, f"layers.{i}.attn_norm")
        h = m.b.add(h, m.attention(x, i) if layer.kind == "attention" else conv.short_conv(m, x, i))
        h = m.b.add(h, m.gated_ffn(m.norm(h, f"layers.{i}.ffn_norm"), i))
    return m.finish(h)


LFM2 = Architecture(
    "lfm2",
    ("lfm2", "Lfm2ForCausalLM"),
    read,
    TOP,
    LAYER,
    build,
    kinds={"attention": ATTENTION, "recurrence": conv.SHORT_CONV},
    ignored=Ignored(
        hf=words(
            """
            block_dim block_ffn_dim_multiplier block_ffn_te_autocast block_mlp_init_scale block_multiple_of
            block_norm_eps block_out_init_scale block_sequence_parallel_norm_across_tp block_use_xavier_init conv_dim
            conv_dim_out conv_use_xavier_init ffn_te_autocast full_attn_idxs num_heads
            sequence_parallel_norm_across_tp
            """
        ),
        hf_only={
            **WITHOUT_BIASES,
            "block_ffn_use_quantized_params": OFF,
            "block_use_swiglu": ON,
            "ffn_use_quantized_params": OFF,
            "use_pos_enc": ON,
        },
    ),
)
