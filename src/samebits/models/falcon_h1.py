"""Falcon-H1: attention and a state space side by side in every layer, and multipliers nearly everywhere.

GGUF files have the multipliers in their matrices and name none.
"""

from __future__ import annotations

from samebits.graph import Value
from samebits.loaders.fields import shown
from samebits.models.architecture import Architecture, Weight
from samebits.models.parts import ssm
from samebits.models.parts import tensors as t
from samebits.models.parts.builder import ModelParts, StepGraph
from samebits.models.parts.decoder import KEYS, Decoder, activation, read_decoder
from samebits.models.parts.ignored import INITIAL_STEPS, ON, Ignored, words
from samebits.models.parts.keys import MAX_HEAD_SIZE, MAX_HEADS, MAX_TAPS, MAX_WIDTH, REQUIRED, Source, number, whole
from samebits.models.parts.recurrence import Ssm

#                            GGUF                                Hugging Face                bounds          absent
FALCON_KEYS = KEYS | {
    "rms_eps":        number("attention.layer_norm_rms_epsilon", "rms_norm_eps",             1e-12, 1.0, 1e-5,
                             gguf_default=REQUIRED),
    "embed_scale":    number(None,                               "embedding_multiplier",     1e-6, 1e6, 1.0),
    "logit_scale":    number(None,                               "lm_head_multiplier",       1e-6, 1e6, 1.0),
    "key_scale":      number(None,                               "key_multiplier",           1e-6, 1e6, 1.0),
}  # fmt: skip
FACTORS = {
    "attn_in":        number(None,                               "attention_in_multiplier",  1e-6, 1e6, 1.0),
    "attn_out":       number(None,                               "attention_out_multiplier", 1e-6, 1e6, 1.0),
    "ssm_in":         number(None,                               "ssm_in_multiplier",        1e-6, 1e6, 1.0),
    "ssm_out":        number(None,                               "ssm_out_multiplier",       1e-6, 1e6, 1.0),
}  # fmt: skip
LISTS = {  # of a config.json, and what their numbers multiply, in order
    "ssm_multipliers": ("ssm.gate", "ssm.x", "ssm.b", "ssm.c", "ssm.dt"),
    "mlp_multipliers": ("ffn.gate", "ffn.down"),
}
SSM_KEYS = {
    "num_heads":      whole(None,                                "mamba_n_heads",            1, MAX_HEADS, 128),
    "state_size":     whole(None,                                "mamba_d_state",            1, MAX_HEAD_SIZE, 256),
    "num_groups":     whole(None,                                "mamba_n_groups",           1, MAX_HEADS, 1),
    "num_taps":       whole(None,                                "mamba_d_conv",             2, MAX_TAPS, 4),
    "inner_size":     whole(None,                                "mamba_d_ssm",              1, MAX_WIDTH, 1024),
}  # fmt: skip
TOP = tuple(w if w.name != "norm" else Weight("norm", "H", "output_norm", "model.final_layernorm") for w in t.TOP)
LAYER = (
    Weight("attn_norm", "H",   "attn_norm", "input_layernorm"),
    Weight("ffn_norm",  "H",   "ffn_norm",  "pre_ff_layernorm", bare="gguf"),
    *t.ATTENTION,
    *t.QKV_BIASES,
    *t.OUT_BIAS,
    *ssm.tensors("mamba"),
    Weight("ffn.gate",  "F H", "ffn_gate",  "feed_forward.gate_proj"),
    Weight("ffn.up",    "F H", "ffn_up",    "feed_forward.up_proj"),
    Weight("ffn.down",  "H F", "ffn_down",  "feed_forward.down_proj"),
)  # fmt: skip


def read(source: Source) -> Decoder:
    """A factor of keys is one of attention's logits."""
    for key in ("mamba_proj_bias", "projectors_bias"):
        source.refuse(None, key, "false: biases of projections are not supported")
    values = source.values(FALCON_KEYS)
    key_scale = values.pop("key_scale")
    return read_decoder(
        source,
        values,
        activation=activation(source, "hidden_act", default="silu"),
        query_scalar=values["head_size"] / key_scale**2,
        factors={name: factor for name, factor in _factors(source).items() if factor != 1},
        recurrence=_ssm(source),
    )


def _ssm(source: Source) -> Ssm:
    if source.is_gguf:
        return ssm.read_ssm(source, {}, "", has_norm=source.has_tensor(".ssm_norm.weight"))
    return ssm.read_ssm(
        source,
        SSM_KEYS,
        "mamba_conv_bias",
        has_norm=source.flag("mamba_rms_norm", False),
        is_gated_first=not source.flag("mamba_norm_before_gate", True),
        **ssm.time_step_limits(source),
    )


def _factors(source: Source) -> dict[str, float]:
    factors = source.values(FACTORS)
    for key, names in LISTS.items():
        numbers = [1.0] * len(names) if source.is_gguf else source.fields.get(key) or [1.0] * len(names)
        is_list = isinstance(numbers, list) and len(numbers) == len(names)
        if not is_list or any(type(n) not in (int, float) or not 1e-6 <= n <= 1e6 for n in numbers):
            raise source.fields.fail(key, shown(numbers), f"{len(names)} numbers from 1e-06 to 1e+06")
        factors |= dict(zip(names, map(float, numbers), strict=True))
    return factors


def build(m: ModelParts) -> StepGraph:
    """Both mixers read the same norm, and what they give is added together."""
    h = m.embed()
    for layer in range(m.config.num_layers):
        x = m.norm(h, f"layers.{layer}.attn_norm")
        scanned = m.scaled(ssm.ssm(m, m.scaled(x, "ssm_in"), layer), "ssm_out")
        attended = m.scaled(m.attention(m.scaled(x, "attn_in"), layer), "attn_out")
        h = m.b.add(h, m.b.add(scanned, attended))
        h = m.b.add(h, _ffn(m, m.norm(h, f"layers.{layer}.ffn_norm"), layer))
    return m.finish(h)


def _ffn(m: ModelParts, x: Value, layer: int) -> Value:
    name = f"layers.{layer}.ffn"
    gate = m.scaled(m.linear(x, f"{name}.gate"), "ffn.gate")
    gated = m.b.silu_and_mul(m.b.concat_columns(gate, m.linear(x, f"{name}.up")))
    return m.scaled(m.linear(gated, f"{name}.down"), "ffn.down")


IGNORED = Ignored(
    hf=INITIAL_STEPS | words("mamba_chunk_size mamba_d_head mamba_expand mlp_expansion_factor"),
    hf_only={"mamba_use_mlp": ON},
)
FALCON_H1 = Architecture("falcon-h1", ("falcon_h1", "FalconH1ForCausalLM"), read, TOP, LAYER, build, ignored=IGNORED)
