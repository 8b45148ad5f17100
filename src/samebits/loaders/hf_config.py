"""Architecture and hyperparameters from a Hugging Face config.json."""

from __future__ import annotations

import math
from typing import Any

from samebits.core.protocols import Hyperparameters, RopeScaling
from samebits.loaders.fields import Fields
from samebits.loaders.limits import MAX_CONTEXT, MAX_HEAD_SIZE, MAX_HEADS, MAX_LAYERS, MAX_VOCAB, MAX_WIDTH, checked
from samebits.loaders.quantization import quantization_of

MODEL_TYPES = {"llama": "llama", "mistral": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "gemma2": "gemma2"}
CLASSES = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "mistral",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
    "Gemma2ForCausalLM": "gemma2",
}
ACTIVATIONS = {"silu": "silu", "swish": "silu", "gelu_pytorch_tanh": "gelu_tanh"}


def read_hf_config(config: dict[str, Any], where: str) -> tuple[str, Hyperparameters]:
    """The architecture's name and the hyperparameters; BadInput for a model that is not ours."""
    fields = Fields(config, where)
    classes = config.get("architectures")
    named = classes[0] if isinstance(classes, list) and classes and isinstance(classes[0], str) else ""
    model_type = fields.text("model_type", CLASSES.get(named, named or "nothing"))
    if model_type not in MODEL_TYPES:
        raise fields.fail("model_type", repr(model_type), f"one of {', '.join(MODEL_TYPES)}")
    if fields.flag("mlp_bias", False):
        raise fields.fail("mlp_bias", True, "false: biases in the feed-forward part are not supported")
    quantization_of(config, where)  # refuses what the loader cannot read
    return MODEL_TYPES[model_type], _hyperparameters(model_type, fields)


def _hyperparameters(model_type: str, fields: Fields) -> Hyperparameters:
    is_gemma2 = model_type == "gemma2"
    num_layers = fields.integer("num_hidden_layers", 1, MAX_LAYERS)
    hidden_size = fields.integer("hidden_size", 1, MAX_WIDTH)
    num_heads = fields.integer("num_attention_heads", 1, MAX_HEADS)
    head_size = fields.integer("head_dim", 1, MAX_HEAD_SIZE, hidden_size // num_heads)
    rope = fields.mapping("rope_parameters" if fields.has("rope_parameters") else "rope_scaling")
    context_len = fields.integer("max_position_embeddings", 1, MAX_CONTEXT)
    has_bias = fields.flag("attention_bias", model_type == "qwen2")
    window, sliding_layers = _sliding(model_type, fields, num_layers)
    return checked(
        Hyperparameters(
            num_layers=num_layers,
            hidden_size=hidden_size,
            ffn_size=fields.integer("intermediate_size", 1, MAX_WIDTH),
            num_heads=num_heads,
            num_kv_heads=fields.integer("num_key_value_heads", 1, MAX_HEADS, num_heads),
            head_size=head_size,
            vocab_size=fields.integer("vocab_size", 1, MAX_VOCAB),
            context_len=context_len,
            rms_eps=fields.number("rms_norm_eps", 1e-12, 1.0, 1e-6),
            rope_theta=rope.number("rope_theta", 1.0, 1e12, fields.number("rope_theta", 1.0, 1e12, 10000.0)),
            rotary_dims=int(head_size * fields.number("partial_rotary_factor", 0.01, 1.0, 1.0)),
            rope_is_interleaved=False,
            query_scalar=fields.number("query_pre_attn_scalar", 1e-3, 1e6, float(256 if is_gemma2 else head_size)),
            rope_scaling=_rope_scaling(rope, context_len),
            sliding_window=window,
            sliding_layers=sliding_layers,
            attn_soft_cap=_soft_cap(fields, "attn_logit_softcapping", 50.0 if is_gemma2 else None),
            final_soft_cap=_soft_cap(fields, "final_logit_softcapping", 30.0 if is_gemma2 else None),
            tie_embeddings=fields.flag("tie_word_embeddings", is_gemma2),
            norm_weight_offset=1.0 if is_gemma2 else 0.0,
            embed_scale=math.sqrt(hidden_size) if is_gemma2 else 1.0,
            activation=_activation(fields, is_gemma2),
            has_qkv_bias=has_bias,
            has_out_bias=has_bias and model_type != "qwen2",
            has_qk_norm=model_type == "qwen3",
            has_post_norms=is_gemma2,
        ),
        fields.where,
    )


def _if_absent(fields: Fields, key: str, default: Any) -> Any:
    """The model class's default where the key is absent; None where it is null, which switches the feature off."""
    return None if key in fields.values else default


def _soft_cap(fields: Fields, key: str, default: float | None) -> float | None:
    return fields.number(key, 1e-3, 1e6, _if_absent(fields, key, default))


def _activation(fields: Fields, is_gemma2: bool) -> str:
    key = "hidden_activation" if fields.has("hidden_activation") else "hidden_act"
    if is_gemma2 and key == "hidden_act":  # Gemma 2 reads only hidden_activation
        return "gelu_tanh"
    name = fields.text(key, "silu")
    if name not in ACTIVATIONS:
        raise fields.fail(key, repr(name), f"one of {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]


def _sliding(model_type: str, fields: Fields, num_layers: int) -> tuple[int | None, tuple[bool, ...]]:
    """The window and the layers that have it."""
    window = fields.integer("sliding_window", 1, MAX_CONTEXT, _if_absent(fields, "sliding_window", 4096))
    is_qwen = model_type.startswith("qwen")
    if model_type == "llama" or window is None or (is_qwen and not fields.flag("use_sliding_window", False)):
        return None, ()
    types = fields.get("layer_types")
    if types is not None:
        known = ("sliding_attention", "full_attention")
        if not isinstance(types, list) or len(types) != num_layers or any(t not in known for t in types):
            raise fields.fail("layer_types", types, f"{num_layers} of {' or '.join(known)}")
        layers = tuple(t == known[0] for t in types)
    elif model_type == "gemma2":
        layers = tuple(i % 2 == 0 for i in range(num_layers))
    elif is_qwen:
        first = fields.integer("max_window_layers", 0, MAX_LAYERS, 28)
        layers = tuple(i >= first for i in range(num_layers))
    else:
        layers = (True,) * num_layers
    return (window, layers) if any(layers) else (None, ())


def _rope_scaling(rope: Fields, context_len: int) -> RopeScaling:
    if nested := next((key for key, value in rope.values.items() if isinstance(value, dict)), None):
        raise rope.fail(nested, "an object", "one rotation for all layers")
    kind = rope.text("rope_type", rope.text("type", "default"))
    if kind == "default":
        return RopeScaling()
    if kind not in ("linear", "llama3", "yarn"):
        raise rope.fail("rope_type", repr(kind), "default, linear, llama3 or yarn")
    factor = rope.number("factor", 1e-3, 1e4)
    if kind == "linear":
        return RopeScaling(kind, factor)
    original = rope.integer("original_max_position_embeddings", 1, MAX_CONTEXT, context_len)
    if kind == "llama3":
        low = rope.number("low_freq_factor", 1e-3, 1e4)
        high = rope.number("high_freq_factor", 1e-3, 1e4)
        if high <= low:
            raise rope.fail("high_freq_factor", high, f"more than low_freq_factor, {low}")
        return RopeScaling(kind, factor, original, low, high)
    for key in ("mscale", "mscale_all_dim"):
        if rope.has(key):
            raise rope.fail(key, rope.get(key), "no such key: this variant of yarn is not supported")
    return RopeScaling(
        kind,
        factor,
        original,
        beta_fast=rope.number("beta_fast", 1e-3, 1e6, 32.0),
        beta_slow=rope.number("beta_slow", 1e-3, 1e6, 1.0),
        attention_factor=rope.number("attention_factor", 1e-3, 1e6, None),
    )
