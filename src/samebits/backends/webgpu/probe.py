"""What a WebGPU device is, and whether it computes as the portable tier needs: one dispatch at start."""

from __future__ import annotations

from functools import cache

import numpy as np

from samebits.backends.arithmetic import FEW, judged, operands
from samebits.backends.webgpu.device import Gpu
from samebits.backends.webgpu.errors import explained
from samebits.backends.webgpu.questions import questions, right_answers
from samebits.backends.webgpu.schedule import Schedules
from samebits.core.tiers import Tier
from samebits.kernels.wgsl.lib.launch import Binding, Dispatch, Operand

GROUP = 64  # invocations
CONTRACTS = "contracts a product and a sum where nothing keeps them apart"
REASONS = {  # of answers beyond those that every device is asked
    "pairs' products": "float32 products are not IEEE's",
    "pairs' sums": "float32 sums are not IEEE's",
    "pairs' differences": "float32 differences are not IEEE's",
    "int32": "int32 is not rounded to the nearest float32",
    "uint32": "uint32 is not rounded to the nearest float32",
    "exponentials": "the reference's exponential comes out otherwise",
    "wide float16": "float16 is not widened exactly",
    "wide bfloat16": "bfloat16 is not widened exactly",
    "halves": "float32 is not rounded to the nearest float16 or bfloat16",
    "dots": "products of four int8 are not added exactly",
}


def facts_of(gpu: Gpu) -> tuple[str, ...]:
    """The driver and how many invocations go together, as far as wgpu knows; the device's name has the API."""
    info = gpu.adapter.info
    sizes = [next((v for k, v in info.items() if k.endswith(f"group_{end}_size")), 0) for end in ("min", "max")]
    together = f"subgroups of {sizes[0]}" if sizes[0] == sizes[1] else f"subgroups of {sizes[0]} to {sizes[1]}"
    return tuple(fact for fact in (info["description"], together if any(sizes) else "") if fact)


@cache
def probed(gpu: Gpu) -> tuple[tuple[str, ...], dict[Tier, str]]:
    """(features, tiers that are disproved with the reason) of a device; it is asked once per process."""
    features, refuted = judged_answers(answers_of(gpu))
    return (*facts_of(gpu), *features), refuted


def answers_of(gpu: Gpu) -> dict[str, np.ndarray]:
    """What the device answers, as `right_answers` has it."""
    asked = questions()
    counts = [len(given[0]) for _, given in asked.values()]
    words = np.zeros((sum(counts), 4), np.uint32)
    for (kind, given), end, count in zip(asked.values(), np.cumsum(counts), counts, strict=True):
        words[end - count : end, 0] = kind
        for number, operand in enumerate(given, 1):
            words[end - count : end, number] = operand.view(np.uint32)
    answers = np.split(_computed(gpu, words), np.cumsum(counts)[:-1])
    return {
        name: answer.view(right.dtype).reshape(right.shape)
        for answer, (name, right) in zip(answers, right_answers().items(), strict=True)
    }


def _computed(gpu: Gpu, words: np.ndarray) -> np.ndarray:
    """uint32 [questions]: the shader's answers to questions of four words each, a multiple of GROUP."""
    asked, found = gpu.buffer(words.nbytes), gpu.buffer(4 * len(words))
    gpu.write(asked, words)
    bindings = (
        Binding("questions", Operand("u32", words.shape, asked, row_stride=4), view="vec4"),
        Binding("answers", Operand("u32", (len(words),), found), "write"),
    )
    dispatch = Dispatch("probe/arithmetic", bindings, (len(words) // GROUP, 1, 1))
    schedule = Schedules(gpu, faults=None).get((), lambda: [dispatch])
    with explained("the arithmetic probe"):
        encoder = gpu.device.create_command_encoder()
        schedule.encode(encoder)
        gpu.queue.submit([encoder.finish()])
    return gpu.read(found, 4 * len(words)).view(np.uint32)


def judged_answers(found: dict[str, np.ndarray]) -> tuple[tuple[str, ...], dict[Tier, str]]:
    """(features, tiers disproved) of a device's answers. Contracting what nothing keeps apart disproves nothing."""
    right = right_answers()
    features, refuted = judged(operands(), found["products"], found["sums"])
    if not np.array_equal(found["bare sums"][FEW:], right["bare sums"][FEW:]):
        features += (CONTRACTS,)
    for name, reason in REASONS.items():
        if not refuted and not _are_same(name, found[name], right[name]):
            refuted = {Tier.PORTABLE: reason}
    return features, refuted


def _are_same(name: str, found: np.ndarray, right: np.ndarray) -> bool:
    """Equal values; a NaN where there is one. Subnormals of bfloat16 are never met, so they may be flushed."""
    if name == "wide bfloat16":
        tiny = np.abs(right) < np.finfo(np.float32).smallest_normal
        found, right = found[~tiny], right[~tiny]
    return np.array_equal(found, right, equal_nan=right.dtype == np.float32)
