"""What rooms know of each other without importing each other."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from samebits.core.format import HostTensor
from samebits.core.shapes import Env, TensorSpec


class ResultSpec(Protocol):
    """The part of a result's record that a graph needs."""

    @property
    def alias_of(self) -> str | None:
        """The input it is written into, in place."""
        ...


class OpSpec(Protocol):
    """The part of an op record that a graph needs."""

    @property
    def name(self) -> str: ...

    @property
    def writes(self) -> tuple[str, ...]:
        """Inputs updated in place."""
        ...

    @property
    def caches(self) -> tuple[str, ...]:
        """Inputs that are caches, written or only read."""
        ...

    @property
    def is_view(self) -> bool:
        """Whether its one result is columns of its one input, unchanged."""
        ...

    @property
    def view_start(self) -> Callable[..., int] | None:
        """(**attrs), of a view: the input's column where the result's rows begin."""
        ...

    def infer(self, specs: dict[str, TensorSpec], attrs: dict[str, Any], env: Env) -> tuple[TensorSpec, ...]:
        """Specs of the results."""
        ...

    def active_results(self, present: Iterable[str], attrs: dict[str, Any]) -> tuple[ResultSpec, ...]:
        """The results of a call with these inputs."""
        ...


@dataclass(frozen=True)
class RopeScaling:
    """How rotary frequencies are changed for longer contexts. Only the fields of its kind mean anything.

    none     as they are
    linear   positions divided by `factor`
    llama3   `factor`, `low_freq_factor`, `high_freq_factor`, `original_context_len`
    factors  frequencies divided by the checkpoint's tensor "rope_freqs" [rotary_dims / 2]
    yarn     `factor`, `original_context_len`, `beta_fast`, `beta_slow`, `attention_factor` (None: 1 + 0.1 ln factor)
    """

    kind: str = "none"
    factor: float = 1.0
    original_context_len: int = 0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None


@dataclass(frozen=True, kw_only=True)
class Hyperparameters:
    """What a model's graph is built from, the same for every kind of file.

    rope_is_interleaved  rotary pairs are (0, 1), (2, 3), ... (GGUF `llama` files), else (0, d/2), (1, d/2 + 1), ...
    sliding_layers       whether layer i keeps only `sliding_window` positions; empty when none does
    norm_weight_offset   added to every stored norm weight before it is used
    query_scalar         attention logits are multiplied by query_scalar ** -0.5
    embed_scale          embeddings are multiplied by it
    """

    num_layers: int
    hidden_size: int
    ffn_size: int
    num_heads: int
    num_kv_heads: int
    head_size: int
    vocab_size: int
    context_len: int
    rms_eps: float
    rope_theta: float
    rotary_dims: int
    rope_is_interleaved: bool
    query_scalar: float
    rope_scaling: RopeScaling = RopeScaling()
    sliding_window: int | None = None
    sliding_layers: tuple[bool, ...] = ()
    attn_soft_cap: float | None = None
    final_soft_cap: float | None = None
    tie_embeddings: bool = False
    norm_weight_offset: float = 0.0
    embed_scale: float = 1.0
    activation: str = "silu"
    has_qkv_bias: bool = False
    has_out_bias: bool = False
    has_qk_norm: bool = False
    has_post_norms: bool = False


class Checkpoint(Protocol):
    """A model's weights under one naming scheme, whatever file they come from.

    Names: embed, norm, head, rope_freqs, and for layer i under "layers.i.": attn_norm, ffn_norm, post_attn_norm,
    post_ffn_norm, attn.{q,k,v,o}, attn.{q,k,v,o}_bias, attn.{q,k}_norm, ffn.{gate,up,down}.
    Matrices are [out, in]. With tied embeddings "head" is "embed".
    """

    @property
    def architecture(self) -> str: ...

    @property
    def hyperparameters(self) -> Hyperparameters: ...

    def names(self) -> tuple[str, ...]:
        """Every name that `tensor` answers to."""
        ...

    def tensor(self, name: str) -> HostTensor:
        """The tensor, its shape checked; may be a read-only view of the file."""
        ...

    def release(self, name: str) -> None:
        """Says that the tensor was copied elsewhere: memory that its view of the file took may go."""
        ...
