"""gemm on weights in f32, f16 and bf16: activations rounded to the weight's type, sums in the stream order."""

from __future__ import annotations

from samebits.kernels.record import OpCall
from samebits.kernels.wgsl.lib.faults import fault
from samebits.kernels.wgsl.lib.launch import Binding, Call, Dispatch, ceil_div
from samebits.kernels.wgsl.lib.registry import implements, only_f32
from samebits.kernels.wgsl.products.packing import pack
from samebits.kernels.wgsl.products.windows import preparation, products, windows

TYPE_NAMES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}  # as the reference's message has them
RUN = 16  # elements of a chain


def _dense_gemm(call: OpCall) -> str | None:
    name = call.inputs["weight"].format
    return only_f32("x")(call) if name in TYPE_NAMES else f"a weight in {name}, not one of {', '.join(TYPE_NAMES)}"


@implements("gemm", when=_dense_gemm, prepack={"weight": pack})
def gemm_dense(call: Call) -> list[Dispatch]:
    x, weight = call.tensor("x"), call.weight("weight")
    name, k = weight.format, weight.shape[1]
    runs = ceil_div(k, RUN)
    needed = f"finite {TYPE_NAMES[name]} values"
    faults = {"BAD_X": fault("gemm", "x", "NaN, Inf or a value beyond the type's range", needed)}
    found = []
    for window in windows(call, x.shape[0], runs * RUN):
        sizes, snippets = {"runs": runs, "k": k}, (f"operand_{name}",)
        inputs = (Binding("x", x),)
        found.append(preparation("operands", window, inputs, "fours", runs * 4, {}, sizes, snippets, faults))
        bias, consts = call.optional("bias"), {"IS_EXACT": name != "f32"}
        snippets = (f"dense_{name}",)
        found += products("dense", window, weight, bias, call.outputs[0], consts, {"runs": runs}, snippets)
    return found
