"""Routing and combining: defects of ties, groups, biases, weights, and the order in which ranks are added."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import numpy as np
from planted import F, Results, defined
from planted_base import Arguments, Defect, DefectiveExecutable, Scene, shown_by
from planted_scenes import call, f32, floats

from samebits.core.shapes import TensorSpec
from samebits.ops.build import OpBuilder

IN_GROUPS = {"groups": 2, "top_k": 2, "scores": "sigmoid"}
FALLING = f32([0.9, 0.8, 0.7, 0.6])
FLAT = f32([1, 1, 0, 1])


def routed(logits: np.ndarray, **rule: Any) -> Scene:
    return call("route", logits=logits, **rule)


class Routing(Defect):
    ops = ("route",)


class TiesToTheHighest(Routing):
    """Prefers the later of two experts with equal scores."""

    witness = shown_by(routed, FLAT, top_k=2)
    twin = shown_by(routed, FALLING, top_k=2)

    def kernel(self, op_name: str, arguments: Arguments) -> Results:
        def ranking(x: np.ndarray) -> np.ndarray:
            return x.shape[-1] - 1 - np.argsort(-x[..., ::-1], axis=-1, kind="stable")

        with patch("samebits.ops.route.ranking", ranking):
            return super().kernel(op_name, arguments)


class GroupMaskIgnored(Routing):
    """Chooses among the experts of all groups, also of those that are not kept."""

    witness = shown_by(routed, f32([3, -3, 2, 1]), **IN_GROUPS)
    twin = shown_by(routed, f32([3, 2, 1, -3]), **IN_GROUPS)

    def change(self, a: Arguments) -> Arguments:
        return {"groups_kept": a["groups"]}


class GroupByItsBestAlone(Routing):
    """Ranks a group by its best expert where the sum of its two best is asked for."""

    witness = shown_by(routed, f32([3, -3, 2, 1]), **IN_GROUPS, group_best=2)
    twin = shown_by(routed, f32([3, 2, 1, -3]), **IN_GROUPS, group_best=2)

    def change(self, a: Arguments) -> Arguments:
        return {"group_best": 1}


class MaskedGroupsAtZero(Routing):
    """Gives experts of other groups a score of 0: they win over scores that a bias makes negative."""

    witness = shown_by(routed, f32([3, 2, 1, -3]), bias=f32(-4, -4, -4, -4), **IN_GROUPS)
    twin = shown_by(routed, f32([3, 2, 1, -3]), **IN_GROUPS)

    def kernel(self, op_name: str, arguments: Arguments) -> Results:
        with patch("samebits.ops.route.NEVER", F(0)):
            return super().kernel(op_name, arguments)


class BiasInWeights(Routing):
    """Takes the scores that rank experts, bias included, for the weights."""

    witness = shown_by(routed, FALLING, bias=f32(0, 0, 1, 0), top_k=2, scores="sigmoid")
    twin = shown_by(routed, FALLING, top_k=2, scores="sigmoid")

    def spoil(self, a: Arguments, results: Results) -> None:
        if a.get("bias") is not None and a["scores"] != "chosen":
            ids, weights = results
            plain = defined("route", {**a, "normalize": False, "scale": 1.0})[1] + a["bias"][ids]
            total = plain.sum(axis=1, keepdims=True) if a["normalize"] else F(1)
            weights[:] = np.where(total == 0, 0, plain / np.where(total == 0, 1, total)) * F(a["scale"])


class SoftmaxOverAll(Routing):
    """Takes the softmax over all experts where one over the chosen experts is asked for."""

    witness = shown_by(routed, FALLING, top_k=2, scores="chosen")
    twin = shown_by(routed, FALLING, top_k=2)

    def change(self, a: Arguments) -> Arguments:
        return {"scores": "softmax"} if a["scores"] == "chosen" else {}


class ScaleOrSum(Routing):
    """Ignores the scale when weights are normalized."""

    witness = shown_by(routed, FALLING, top_k=2, normalize=True, scale=2.5)
    twin = shown_by(routed, FALLING, top_k=2, scale=2.5)

    def change(self, a: Arguments) -> Arguments:
        return {"scale": 1.0} if a["normalize"] else {}


class EpsForgotten(Routing):
    """Divides by the sum of the weights without eps."""

    witness = shown_by(routed, FALLING, top_k=2, scores="sigmoid", normalize=True, eps=0.5)
    twin = shown_by(routed, FALLING, top_k=2, scores="sigmoid", normalize=True)

    def change(self, a: Arguments) -> Arguments:
        return {"eps": 0.0}


class SumClamped(Routing):
    """Clamps the sum of the weights at 6.1e-5, as another library does."""

    witness = shown_by(routed, FALLING - F(20), top_k=2, scores="sigmoid", normalize=True)
    twin = shown_by(routed, FALLING, top_k=2, scores="sigmoid", normalize=True)

    def spoil(self, a: Arguments, results: Results) -> None:
        if a["normalize"]:
            total = defined("route", {**a, "normalize": False, "scale": 1.0})[1].sum(axis=1)
            results[1][total < 6.1e-5] *= (total[total < 6.1e-5] / F(6.1e-5))[:, None]


class ExpertsBeyondATile(Routing):
    """Has room for the scores of 256 experts: later ones are never chosen."""

    witness = shown_by(routed, np.arange(300, dtype=np.float32)[None] * F(0.01), top_k=2)
    twin = shown_by(routed, floats(3, 256), top_k=2)

    def change(self, a: Arguments) -> Arguments:
        cut = a["logits"].copy()
        cut[:, 256:] = -80
        return {"logits": cut}


WEIGHTS = f32([0.5, 0.25, 0.125, 0.7])
CANCELLING = np.concatenate([floats(1, 8, size=1e4), -floats(1, 8, size=2e4), floats(2, 8, seed=1)])


class LastRankFirst(Defect):
    """Adds a token's experts from the last rank to the first."""

    ops = ("combine",)
    witness = shown_by(call, "combine", y=CANCELLING, weights=WEIGHTS)
    twin = shown_by(call, "combine", y=CANCELLING[:2], weights=WEIGHTS[:, :2])

    def change(self, a: Arguments) -> Arguments:
        num_tokens, num_ranks = a["weights"].shape
        y = a["y"].reshape(num_tokens, num_ranks, -1)[:, ::-1].reshape(a["y"].shape)
        return {"y": y.copy(), "weights": a["weights"][:, ::-1].copy()}


def layer(logits: np.ndarray) -> Scene:
    """route and combine in one graph."""
    b = OpBuilder()
    routed = b.route(b.input("logits", TensorSpec(logits.shape, "f32")), top_k=4, normalize=True)
    graph = b.finish(b.combine(b.input("y", TensorSpec((4, 8), "f32")), routed[1]))
    return Scene(graph, ({"logits": logits, "y": CANCELLING},))


class CombineInOrderOfExperts(Defect):
    """Adds a token's experts in the order of their numbers instead of their ranks."""

    ops = ("combine",)
    witness = shown_by(layer, FALLING[:, ::-1].copy())
    twin = shown_by(layer, FALLING)

    def launch(self, run: DefectiveExecutable, number: int, arguments: Arguments) -> Results:
        weights = run.node(number).inputs["weights"].name
        ids = next((n.outputs[0].name for n in run.graph.nodes if weights in [v.name for v in n.outputs]), None)
        if ids is None or not len(arguments["weights"]):
            return run.kernel(number, arguments)
        order = np.argsort(run.values[ids], axis=1, kind="stable")
        y = arguments["y"].reshape(*order.shape, -1)
        sorted_y = np.take_along_axis(y, order[..., None], axis=1).reshape(arguments["y"].shape)
        by_id = {"y": sorted_y, "weights": np.take_along_axis(arguments["weights"], order, axis=1)}
        return run.kernel(number, {**arguments, **by_id})


class SharedAsRankZero(Defect):
    """Starts a token's sum from the shared expert instead of adding that last."""

    ops = ("combine",)
    witness = shown_by(call, "combine", y=CANCELLING, weights=WEIGHTS, shared=floats(1, 8, seed=4))
    twin = shown_by(call, "combine", y=CANCELLING, weights=WEIGHTS)

    def change(self, a: Arguments) -> Arguments:
        if a.get("shared") is None or a.get("shared_gate") is not None:
            return {}
        num_tokens, num_ranks = a["weights"].shape
        y = a["y"].reshape(num_tokens, num_ranks, -1)
        first = a["shared"].astype(a["y"].dtype)[:, None]
        ones = np.ones((num_tokens, 1), np.float32)
        return {
            "y": np.concatenate([first, y], axis=1).reshape(num_tokens * (num_ranks + 1), -1),
            "weights": np.concatenate([ones, a["weights"]], axis=1),
            "shared": None,
        }


def gated(num_tokens: int) -> Scene:
    """combine with a shared row and its gate."""
    shared = {"shared": floats(num_tokens, 8), "shared_gate": floats(num_tokens, 1)}
    return call("combine", y=floats(2 * num_tokens, 8), weights=floats(num_tokens, 2), **shared)


class GateOfTheFirstToken(Defect):
    """Uses the first token's shared gate for every token."""

    ops = ("combine",)
    witness = shown_by(
        call, "combine", y=floats(4, 8), weights=floats(2, 2), shared=floats(2, 8), shared_gate=floats(2, 1)
    )
    twin = shown_by(
        call, "combine", y=floats(2, 8), weights=floats(1, 2), shared=floats(1, 8), shared_gate=floats(1, 1)
    )

    def change(self, a: Arguments) -> Arguments:
        gate = a.get("shared_gate")
        return {} if gate is None else {"shared_gate": np.resize(gate[:1], gate.shape).astype(gate.dtype)}


class GateClampedBelow(Defect):
    """Clamps the gate to -limit from below too, as only the up projection is."""

    ops = ("clamped_swiglu",)
    witness = shown_by(call, "clamped_swiglu", x=floats(2, 16), limit=0.5)
    twin = shown_by(call, "clamped_swiglu", x=np.abs(floats(2, 16)), limit=0.5)

    def change(self, a: Arguments) -> Arguments:
        x, half = a["x"].copy(), a["x"].shape[-1] // 2
        gate = x[..., :half]
        x[..., :half] = np.where(gate < -F(a["limit"]), -F(a["limit"]), gate)
        return {"x": x}


class NanClampedAway(Defect):
    """Clamps with a minimum that turns NaN into a number."""

    ops = ("clamped_swiglu",)
    witness = shown_by(call, "clamped_swiglu", x=f32([np.nan, 1, 1, 1]))
    twin = shown_by(call, "clamped_swiglu", x=floats(2, 16))

    def change(self, a: Arguments) -> Arguments:
        return {"x": np.where(np.isnan(a["x"]), F(a["limit"]), a["x"]).astype(a["x"].dtype)}
