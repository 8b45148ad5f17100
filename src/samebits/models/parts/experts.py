"""The sizes and the router of a mixture of experts, as architectures read them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from samebits.core.errors import BadInput


@dataclass(frozen=True)
class Mixture:
    """A feed-forward part of many experts, of which every token chooses a few.

    top_k             experts that a token chooses
    expert_size       the width of one expert, as `Decoder.ffn_size` is of a dense part
    scores            what the router's logits become: "softmax" or "sigmoid" over all, "chosen": softmax over those
    is_normalized     the weights of the chosen are divided by their sum and `eps`
    scale             and then multiplied by it
    num_groups        experts lie in so many equal groups, of which a token chooses `num_groups_kept`; a group counts as
                      its `group_best` best experts do together
    has_choice_bias   a bias per expert takes part in the choice, and not in the weights
    shared_size       the width of what every token passes through beside its experts; 0: nothing
    has_shared_gate   that part is multiplied by a sigmoid of its own
    has_bias          the router and every product of an expert have a bias
    latent_size       experts read and write vectors of this width, between two projections; 0: of the model's own
    is_gated          an expert has a gate; else its activation is the square of a relu
    alpha, limit      of gpt-oss's clamped activation; a limit of 0: the model's usual one
    is_joined         the file stores gate and up of all experts as the rows of one tensor
    """

    num_experts: int
    top_k: int
    expert_size: int
    scores: str = "softmax"
    is_normalized: bool = True
    eps: float = 0.0
    scale: float = 1.0
    num_groups: int = 1
    num_groups_kept: int = 1
    group_best: int = 2
    has_choice_bias: bool = False
    shared_size: int = 0
    has_shared_gate: bool = False
    has_bias: bool = False
    latent_size: int = 0
    is_gated: bool = True
    alpha: float = 1.702
    limit: float = 0.0
    is_joined: bool = False

    @property
    def has_shared(self) -> bool:
        return self.shared_size > 0

    @property
    def has_latent(self) -> bool:
        return self.latent_size > 0

    @property
    def is_apart(self) -> bool:
        """Whether the file stores gate and up as tensors of their own."""
        return not self.is_joined

    def dims(self, hidden_size: int) -> dict[str, int]:
        """What the words of tensors' shapes mean, in a model of a width."""
        return {
            "Experts": self.num_experts,
            "ExpertSize": self.expert_size,
            "ExpertWidth": self.latent_size or hidden_size,
            "SharedSize": self.shared_size,
        }

    def route_attrs(self) -> dict[str, Any]:
        """The attributes of the op `route`."""
        return {
            "top_k": self.top_k,
            "scores": self.scores,
            "groups": self.num_groups,
            "groups_kept": self.num_groups_kept,
            "group_best": self.group_best,
            "normalize": self.is_normalized,
            "eps": self.eps,
            "scale": self.scale,
        }


def mixture_of(given: Mixture | None) -> Mixture:
    """What a layer of experts reads of its model's configuration."""
    if given is None:
        raise BadInput("model", "mixture", "none", "a configuration with experts")
    return given
