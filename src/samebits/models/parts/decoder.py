"""The configuration of a dense decoder: what all of them read, and what an architecture adds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from samebits.core.protocols import ModelSize
from samebits.models.parts.experts import Mixture
from samebits.models.parts.keys import (
    MAX_CONTEXT,
    MAX_HEAD_SIZE,
    MAX_HEADS,
    MAX_LAYERS,
    MAX_WIDTH,
    REQUIRED,
    Key,
    Source,
    number,
    whole,
)
from samebits.models.parts.latent import Latent
from samebits.models.parts.recurrence import Recurrence, Ssm
from samebits.models.parts.rope import ROPE_TABLE, Rope, check_kept, read_rope, stated_rotation

#                   GGUF                                 Hugging Face               bounds        where it is absent
KEYS: dict[str, Key] = {
    "num_layers":   whole("block_count",                 "num_hidden_layers",       1, MAX_LAYERS),
    "hidden_size":  whole("embedding_length",            "hidden_size",             1, MAX_WIDTH),
    "ffn_size":     whole("feed_forward_length",         "intermediate_size",       1, MAX_WIDTH),
    "num_heads":    whole("attention.head_count",        "num_attention_heads",     1, MAX_HEADS),
    "num_kv_heads": whole("attention.head_count_kv",     "num_key_value_heads",     1, MAX_HEADS,
                          lambda known: known["num_heads"]),
    "head_size":    whole("attention.key_length",        "head_dim",                1, MAX_HEAD_SIZE,
                          lambda known: known["hidden_size"] // known["num_heads"]),
    "context_len":  whole("context_length",              "max_position_embeddings", 1, MAX_CONTEXT),
    "rms_eps":      number("attention.layer_norm_rms_epsilon", "rms_norm_eps",      1e-12, 1.0, 1e-6,
                           gguf_default=REQUIRED),
}  # fmt: skip
ACTIVATIONS = {"silu": "silu", "swish": "silu", "gelu_pytorch_tanh": "gelu_tanh"}
# Layers behind the others that predict further tokens. GGUF counts them among its layers, a config.json does not.
MORE_LAYERS = {
    "num_more_layers": whole("nextn_predict_layers", "num_nextn_predict_layers", 0, MAX_LAYERS, 0,
                             hf_too="num_mtp_layers"),
}  # fmt: skip
LAYER_TYPES = ("sliding_attention", "full_attention")


@dataclass(frozen=True)
class Layer:
    """What sets a layer apart: the positions it looks back over, None for all, the rotation it has, None for none, what
    it does: "attention", "recurrence", or "ffn" or "experts" where that is a layer of its own; and what its
    feed-forward part is: "dense" or "experts"."""

    window: int | None = None
    rope: str | None = ROPE_TABLE
    kind: str = "attention"
    ffn: str = "dense"


@dataclass(frozen=True, kw_only=True)
class Decoder(ModelSize):
    """What a dense decoder's graph is built from, the same for every kind of file.

    ropes                rotations by the names of their tables
    rope_is_interleaved  rotary pairs are (0, 1), (2, 3), ... (GGUF `llama` files), else (0, d/2), (1, d/2 + 1), ...
    query_scalar         attention logits are multiplied by query_scalar ** -0.5
    embed_scale          embeddings are multiplied by it
    logit_scale          logits are multiplied by it
    has_ffn_bias         gate, up and down of a dense feed-forward part have biases
    has_head_norms       queries and keys are normed head by head, where the files of an architecture differ in it
    factors              what an architecture of its own multiplies by, by name; 1 where it names none
    recurrence           what layers are that keep a state in place of keys and values
    latent               what attention is made of whose keys and values are projections of one row per token
    mixture              what feed-forward parts of experts are
    num_more_layers      layers of the file behind those that run: they predict further tokens, and are left out
    hf_root              what names of tensors in a Hugging Face folder start with
    """

    hidden_size: int
    ffn_size: int
    num_heads: int
    num_kv_heads: int
    head_size: int
    rms_eps: float
    query_scalar: float
    ropes: Mapping[str, Rope]
    layers: tuple[Layer, ...]
    rope_is_interleaved: bool = False
    attn_soft_cap: float | None = None
    final_soft_cap: float | None = None
    embed_scale: float = 1.0
    logit_scale: float = 1.0
    activation: str = "silu"
    is_tied: bool = False
    has_qkv_bias: bool = False
    has_out_bias: bool = False
    has_ffn_bias: bool = False
    has_head_norms: bool = False
    factors: Mapping[str, float] = field(default_factory=dict)
    recurrence: Recurrence | None = None
    latent: Latent | None = None
    mixture: Mixture | None = None
    num_more_layers: int = field(default=0, compare=False)  # no part of the model
    hf_root: str = "model"

    @property
    def has_head(self) -> bool:
        """Whether logits have a matrix of their own."""
        return not self.is_tied

    @property
    def has_rope_freqs(self) -> bool:
        return any(rope.scaling.kind == "factors" for rope in self.ropes.values())

    @property
    def has_rope_factors(self) -> bool:
        return any(rope.scaling.long == "rope_factors.long" for rope in self.ropes.values())

    @property
    def switch_lens(self) -> tuple[int, ...]:
        """Numbers of positions beyond which a rotary table has other angles, ascending; none for most models."""
        return tuple(sorted({n for rope in self.ropes.values() if (n := rope.switch_len) is not None}))

    @property
    def has_conv_bias(self) -> bool:
        return isinstance(self.recurrence, Ssm) and self.recurrence.has_conv_bias

    @property
    def has_ssm_norm(self) -> bool:
        return isinstance(self.recurrence, Ssm) and self.recurrence.has_norm

    def dims(self) -> dict[str, int]:
        """What the letters of tensors' shapes mean; a recurrence, a mixture and a latent cache have names of
        their own."""
        return {
            "V": self.vocab_size,
            "H": self.hidden_size,
            "F": self.ffn_size,
            "Q": self.num_heads * self.head_size,
            "K": self.num_kv_heads * self.head_size,
            "D": self.head_size,
            "A": self.num_heads,
            "R": self.ropes[ROPE_TABLE].dims // 2 if self.ropes else 0,
            **(self.recurrence.dims() if self.recurrence else {}),
            **(self.latent.dims() if self.latent else {}),
            **(self.mixture.dims(self.hidden_size) if self.mixture else {}),
        }


def read_decoder(source: Source, values: dict[str, Any], **given: Any) -> Decoder:
    """The configuration of the values of `KEYS` and more, named as its fields; what is `given` is not looked for."""
    head_size, num_layers = values["head_size"], values["num_layers"]
    if given.get("mixture") is None:
        source.refuse("expert_count", "num_local_experts", "0: this architecture has no mixtures of experts")
    if "latent" not in given:
        source.refuse("attention.value_length", None, f"key_length, {head_size}", head_size)
    if "has_ffn_bias" not in given:
        source.refuse(None, "mlp_bias", "false: biases in the feed-forward part are not supported")
    is_tied = _is_tied(source, given.pop("is_tied", False))
    usual = {"query_scalar": float(head_size), "layers": (Layer(),) * num_layers, **_biases(source)}
    if "ropes" not in values | given:
        usual["ropes"] = {ROPE_TABLE: read_rope(source, rotary_dims(source, head_size), values["context_len"])}
    known = {"vocab_size": source.vocab_size(), "is_tied": is_tied}
    return _checked(source, Decoder(**usual | known | values | given))


def without_more_layers(source: Source, values: dict[str, Any]) -> None:
    """Change the values of `KEYS` and `MORE_LAYERS` so that the number of layers is that of those which run."""
    if source.is_gguf:
        values["num_layers"] -= values["num_more_layers"]
    if values["num_layers"] < 1:
        raise source.fail("layers", values["num_layers"], "at least 1 besides those that predict more tokens")


def windows(source: Source, window: int | None, is_sliding: list[bool]) -> tuple[Layer, ...]:
    """Layers with a window where a config.json lists them so, else where `is_sliding` says it."""
    types = None if source.is_gguf else source.fields.get("layer_types")
    if types is not None:
        count = len(is_sliding)
        if not isinstance(types, list) or len(types) != count or any(t not in LAYER_TYPES for t in types):
            raise source.fields.fail("layer_types", types, f"{count} of {' or '.join(LAYER_TYPES)}")
        is_sliding = [t == LAYER_TYPES[0] for t in types]
    return tuple(Layer(window if sliding else None) for sliding in is_sliding)


def activation(source: Source, *keys: str, default: str) -> str:
    """The first of the keys that a config.json has; GGUF stores none."""
    key = next((k for k in keys if source.fields.has(k)), None) if not source.is_gguf else None
    if key is None:
        return default
    name = source.fields.text(key)
    if name not in ACTIVATIONS:
        raise source.fields.fail(key, repr(name), f"one of {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]


def rotary_dims(source: Source, head_size: int, usual: float | None = None) -> int:
    """Return how many elements of a head are rotated.

    `usual`: the share of them where a config.json states none; None for an architecture that rotates whole heads, of
    which another share is refused. transformers ignores it there, or fails.
    """
    if source.is_gguf:
        return int(source.fields.integer("rope.dimension_count", 2, MAX_HEAD_SIZE, head_size))
    fields, key = source.fields, "partial_rotary_factor"
    rope = stated_rotation(fields)
    beside = 1.0 if key in fields.values else usual or 1.0  # transformers takes a null for whole heads
    share = rope.number(key, 0.01, 1.0, fields.number(key, 0.01, 1.0, beside))
    check_kept(fields, rope, key, share)
    if usual is None and share != 1:
        raise (rope if rope.has(key) else fields).fail(key, share, "1: this architecture rotates whole heads")
    return int(head_size * share)


def _is_tied(source: Source, default: bool) -> bool:
    return "output.weight" not in source.tensors if source.is_gguf else source.flag("tie_word_embeddings", default)


def has_ffn_bias(source: Source) -> bool:
    """Return whether gate, up and down of a dense feed-forward part have biases."""
    if source.is_gguf:
        return any(source.has_tensor(f".ffn_{part}.bias") for part in ("gate", "up", "down"))
    return source.flag("mlp_bias", False)


def _biases(source: Source) -> dict[str, bool]:
    if source.is_gguf:
        names = {"has_qkv_bias": ".attn_q.bias", "has_out_bias": ".attn_output.bias"}
        return {flag: source.has_tensor(name) for flag, name in names.items()}
    return dict.fromkeys(("has_qkv_bias", "has_out_bias"), source.flag("attention_bias", False))


def _checked(source: Source, c: Decoder) -> Decoder:
    """The same configuration, if its values agree with one another."""
    if not any(layer.kind == "attention" for layer in c.layers):
        return c
    if c.head_size < 1:
        raise source.fail("head size", c.head_size, "at least 1")
    if c.num_heads % c.num_kv_heads:
        raise source.fail("key and value heads", c.num_kv_heads, f"a divisor of the {c.num_heads} query heads")
    for rope in c.ropes.values():
        if rope.dims % 2 or rope.dims > c.head_size:
            raise source.fail("rotary dimensions", rope.dims, f"an even number up to the head size {c.head_size}")
    return c
