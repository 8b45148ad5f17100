"""route: which experts a token chooses, in order, and with which weights."""

from __future__ import annotations

from typing import Any

import numpy as np

from samebits.core.errors import BadInput
from samebits.core.numerics.elementary import sigmoid
from samebits.core.numerics.settling import settle
from samebits.core.numerics.sums import chain
from samebits.ops.record import Attr, Case, Input, Result, define_op, positive
from samebits.ops.route_space import ROUTE_SPACE, SCORES
from samebits.ops.select import ranking
from samebits.ops.softmax import normalizer, softmax

F = np.float32
LARGEST_BIAS = F(2.0**80)  # so that a finite logit plus a bias is finite
NEVER = F(-np.inf)


def _scores(name: str) -> str | None:
    return None if name in SCORES else " or ".join(map(repr, SCORES))


def _group_best(count: int) -> str | None:
    return None if count in (1, 2) else "1 or 2"


def _eps(value: float) -> str | None:
    return None if 0 <= value <= 1 else "0 .. 1"


def _check_counts(num_experts: int, top_k: int, groups: int, groups_kept: int, group_best: int) -> None:
    if groups_kept > groups or num_experts % groups:
        given = f"{groups_kept} kept of {groups}"
        raise BadInput("route", "groups", given, f"equal groups of {num_experts} experts, no more kept than there are")
    group_size = num_experts // groups
    if groups > 1 and group_best > group_size:
        raise BadInput("route", "group_best", group_best, f"at most the {group_size} experts of a group")
    if top_k > groups_kept * group_size:
        raise BadInput("route", "top_k", top_k, f"at most the {groups_kept * group_size} experts that may be chosen")


def _check(logits: np.ndarray, bias: np.ndarray | None, *, top_k: int, **attrs: Any) -> None:
    _check_counts(logits.shape[1], top_k, attrs["groups"], attrs["groups_kept"], attrs["group_best"])
    if not np.isfinite(logits).all():
        raise BadInput("route", "logits", "NaN or Inf", "finite values")
    if bias is not None and not (np.abs(bias) <= LARGEST_BIAS).all():
        raise BadInput("route", "bias", "NaN, Inf or a magnitude above 2^80", "finite values")


def kept_experts(choice: np.ndarray, groups: int, groups_kept: int, group_best: int) -> np.ndarray:
    """bool [T, E]: the experts of each token's best groups; a group counts as the sum of its best experts."""
    num_tokens, num_experts = choice.shape
    in_groups = choice.reshape(num_tokens, groups, num_experts // groups)
    best = np.take_along_axis(in_groups, ranking(in_groups)[..., :group_best], axis=-1)
    kept = np.zeros((num_tokens, groups), bool)
    np.put_along_axis(kept, ranking(chain(best))[:, :groups_kept], True, axis=-1)
    return np.repeat(kept, num_experts // groups, axis=-1)


def _case(case_id: str, t: int, e: int, top_k: int, scores: str, **kw: Any) -> Case:
    given = kw.pop("given", ())
    extra = kw.pop("extra", {})
    return Case(case_id, {"T": t, "E": e}, {"top_k": top_k, "scores": scores, **kw}, given=given, extra=extra)


GROUPS = {"groups": 4, "groups_kept": 2, "group_best": 2, "normalize": True, "eps": 1e-20, "scale": 2.5}


@define_op(
    inputs=[
        Input("logits", "T E", ("f32",), "one per token and expert; finite"),
        Input("bias", "E", ("f32",), "added to the scores for the choice, never to the weights", optional=True),
    ],
    attrs=[
        Attr("top_k", int, 1, "experts per token", positive),
        Attr("scores", str, "softmax", "'softmax' or 'sigmoid' over all, 'chosen': softmax over the chosen", _scores),
        Attr("groups", int, 1, "equal groups of experts", positive),
        Attr("groups_kept", int, 1, "groups of which experts are chosen", positive),
        Attr("group_best", int, 1, "a group counts as the sum of so many of its best, 1 or 2", _group_best),
        Attr("normalize", bool, False, "divides the weights by their sum + eps"),
        Attr("eps", float, 0.0, "added to that sum", _eps),
        Attr("scale", float, 1.0, "multiplies the weights last"),
    ],
    results=[
        Result("expert_ids", "T top_k", "i32", "the best first, the lowest id among equals"),
        Result("weights", "T top_k", "f32", "of the experts in that order"),
    ],
    freedom="order of sums in float32; the device's elementary functions; the choice itself is exact",
    cases=lambda: [
        _case("mixtral", 5, 8, 2, "softmax", normalize=True),
        _case("qwen3-moe", 4, 128, 8, "softmax", normalize=True),
        _case("softmax-as-it-is", 3, 60, 4, "softmax"),
        _case("gpt-oss", 5, 32, 4, "chosen"),
        _case("sigmoid-bias", 5, 32, 6, "sigmoid", given=("bias",), normalize=True, eps=1e-6),
        _case("groups", 6, 32, 4, "sigmoid", given=("bias",), **GROUPS),
        _case("deepseek-v2", 4, 160, 6, "softmax", groups=8, groups_kept=3, scale=16.0),
        _case("ties", 6, 32, 4, "sigmoid", given=("bias",), extra={"values": "plateaus"}, **GROUPS),
        _case("all-experts", 3, 7, 7, "softmax"),
        _case("one-expert", 3, 1, 1, "chosen"),
        _case("no-tokens", 0, 8, 2, "softmax"),
        _case("deepseek-v3", 16, 256, 8, "sigmoid", given=("bias",), **{**GROUPS, "groups": 8, "groups_kept": 4}),
    ],
    invariant_axes=("T",),
    check=_check,
    space=lambda: ROUTE_SPACE,
    smallest=-123,
)
def route(
    logits: np.ndarray,
    bias: np.ndarray | None = None,
    *,
    top_k: int = 1,
    scores: str = "softmax",
    groups: int = 1,
    groups_kept: int = 1,
    group_best: int = 1,
    normalize: bool = False,
    eps: float = 0.0,
    scale: float = 1.0,
) -> tuple[np.ndarray, np.ndarray]:
    """The top_k experts of best score + bias, and the scores themselves as weights."""
    score = softmax(logits) if scores == "softmax" else sigmoid(logits) if scores == "sigmoid" else logits
    choice = score if bias is None else settle(score + bias)
    if groups > 1:
        choice = np.where(kept_experts(choice, groups, groups_kept, group_best), choice, NEVER)
    ids = ranking(choice)[:, :top_k]
    weights = np.take_along_axis(score, ids, axis=-1)
    if scores == "chosen":
        weights = softmax(weights)
    if normalize:
        weights = settle(weights * normalizer(chain(weights) + F(eps))[:, None])
    return ids.astype(np.int32), settle(weights * F(scale))
