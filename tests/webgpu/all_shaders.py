"""The text of every shader that kernels ask for over the cases of `samebits verify`, without a device."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from math import prod

from samebits.backends.one_op import one_node
from samebits.backends.support import op_call
from samebits.core.shapes import TensorSpec
from samebits.core.tiers import Tier
from samebits.graph import Node
from samebits.kernels.record import Kernel
from samebits.kernels.wgsl.lib.compose import shader_text
from samebits.kernels.wgsl.lib.launch import Call, Chunk, Dispatch, Operand, Weight
from samebits.kernels.wgsl.table import wgsl_kernels
from samebits.ops import OPS, Op, bind, make_inputs
from samebits.verify.select import drawn_ids, find_case

SIZE = re.compile(r"^const \w+ = \d+u;$", re.MULTILINE)  # what branches on one is translated whatever it is
EACH_DRAWN = 8  # that many are drawn for one that is taken: they repeat what others ask for


@cache
def all_shaders() -> dict[str, str]:
    """Text -> the file of its body, of all ops with kernels; one text of those that differ in sizes alone."""
    names = sorted({kernel.op.name for kernel in wgsl_kernels()})
    texts = {shader_text(d): d.shader for name in names for d in dispatches_of(OPS[name])}
    alike = {SIZE.sub("", text): text for text in texts}
    return {text: texts[text] for text in alike.values()}


def dispatches_of(op: Op) -> Iterator[Dispatch]:
    """What the op's quick cases would run."""
    for case_id in [*(c.id for c in op.cases if not c.full), *drawn_ids(op, full=False, seed=0)[::EACH_DRAWN]]:
        bound = bind(op, **make_inputs(op, find_case(op, case_id)))
        call = op_call(op, bound.specs, bound.attrs, Tier.PORTABLE)
        kernel = next((k for k in wgsl_kernels()[op.name] if k.refusal(call) is None), None)
        if kernel is not None:
            yield from kernel.run(_call(kernel, one_node(op, bound.specs, bound.attrs).nodes[0]))


def _call(kernel: Kernel, node: Node) -> Call:
    inputs = {
        name: _weight(value.spec) if name in kernel.prepack else _operand(value.spec)
        for name, value in node.inputs.items()
    }
    outputs = tuple(_operand(value.spec) for value in node.outputs)
    return Call(inputs, outputs, node.attrs, lambda num_words: Operand("u32", (num_words,), None))


def _operand(spec: TensorSpec) -> Operand:
    shape = spec.upper_shape
    return Operand(spec.format, shape, None, row_stride=prod(shape[1:]))


def _weight(spec: TensorSpec) -> Weight:
    shape = spec.upper_shape
    return Weight(spec.format, shape, (Chunk(0, shape[0], None),))
