"""The text of every shader that kernels ask for over the cases of `samebits verify`, without a device."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np

from samebits.backends import discovery
from samebits.backends.one_op import one_node
from samebits.backends.webgpu.shaders import Shader, shaders_of
from samebits.core.errors import Unsupported
from samebits.core.numerics.counter import Stream
from samebits.core.tiers import Tier
from samebits.kernels.wgsl.table import wgsl_kernels
from samebits.ops import OPS, Op, bind
from samebits.ops.cases import default_inputs
from samebits.ops.record import Case
from samebits.verify.select import drawn_ids, find_case

SIZE = re.compile(r"^const \w+ = \d+u;$", re.MULTILINE)  # what branches on one is translated whatever it is
EACH_DRAWN = 16  # that many are drawn for one that is taken: they repeat what others ask for

MOST_TEXTS = 8  # of a file: translating more takes minutes


@cache
def all_shaders() -> dict[str, str]:
    """Text -> the file of its body, of all ops with kernels: some of each file, evenly taken, none of which differ in
    sizes alone."""
    names = sorted({kernel.op.name for kernel in wgsl_kernels()})
    found = [shader for name in names for shader in shaders_of_op(OPS[name])]
    alike = {SIZE.sub("", shader.text): shader for shader in found}
    by_file: dict[str, list[str]] = {}
    for shader in alike.values():
        by_file.setdefault(shader.dispatch.shader, []).append(shader.text)
    return {text: file for file, texts in by_file.items() for text in texts[:: -(-len(texts) // MOST_TEXTS)]}


class Blank(Stream):
    """A stream whose bell-shaped values are 0: shaders depend on shapes and formats, and drawing weights takes long."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._name = name

    def child(self, name: str) -> Stream:
        return Blank(f"{self._name}/{name}")

    def normal(self, shape: tuple[int, ...], scale: float = 1.0) -> np.ndarray:
        return np.zeros(shape, np.float32)


def blank_inputs(op: Op, case: Case) -> dict[str, Any]:
    """Return the inputs and attrs of a case as make_inputs does, with zeros for bell-shaped values."""
    return {**(op.make_inputs or default_inputs)(op, case, Blank(f"{op.name}/{case.id}")), **case.attrs}


def shaders_of_op(op: Op) -> Iterator[Shader]:
    """What the op's quick cases would run; those that kernels refuse are passed over."""
    for case_id in [*(c.id for c in op.cases if not c.full), *drawn_ids(op, full=False, seed=0)[::EACH_DRAWN]]:
        bound = bind(op, **blank_inputs(op, find_case(op, case_id)))
        try:
            yield from shaders_of(
                discovery.made("webgpu"), one_node(op, bound.specs, bound.attrs), {0}, {}, Tier.PORTABLE
            )
        except Unsupported:
            continue
