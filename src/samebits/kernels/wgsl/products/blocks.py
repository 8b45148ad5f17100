"""Products on weights in block formats: gemm_q8, gemm_silu_q8, and gemm, which quantizes its activations first."""

from __future__ import annotations

from collections.abc import Callable

from samebits.core.format import BLOCK
from samebits.kernels.record import OpCall
from samebits.kernels.wgsl.lib.faults import fault
from samebits.kernels.wgsl.lib.launch import Binding, Call, Dispatch, Operand, Weight, ceil_div, linear
from samebits.kernels.wgsl.lib.registry import implements, only_f32
from samebits.kernels.wgsl.products.block_parts import PARTS
from samebits.kernels.wgsl.products.packing import pack, stretch_consts
from samebits.kernels.wgsl.products.windows import GROUP, Window, preparation, products, windows

IN_PAIRS = ("q4_0", "q4_1", "q4_k")  # formats whose sums are those of nibble_dots.wgsl; byte_dots.wgsl has the others
ONE_TOKEN_GROUP = 8  # invocations: few rows are still shared evenly among the threads of a software driver
MOST_WRITTEN_OUT = 48  # blocks of a row in one_token.wgsl: more would take a driver seconds to compile
REFUSED = ("x", "NaN, Inf or a magnitude above 2^80", "finite values")


def block_weight(call: OpCall) -> str | None:
    """Serves the block formats that have a snippet, and weights that have columns."""
    weight = call.inputs["weight"]
    if weight.format not in PARTS:
        return f"wgsl has products on {', '.join(PARTS)}, not on {weight.format}"
    return None if weight.shape[1] != 0 else "wgsl has no products without columns"


def _block_gemm(call: OpCall) -> str | None:
    return block_weight(call) or only_f32("x")(call)


def _activation_faults(op: str) -> dict[str, int]:
    codes = fault(op, "codes", "-128", "-127 .. 127, as quantize_q8 makes them")
    return {"BAD_CODES": codes, "BAD_SCALES": fault(op, "scales", "NaN or Inf", "finite values")}


def _prepared(
    shader: str, window: Window, inputs: tuple[Binding, ...], weight: Weight, faults: dict[str, int]
) -> Dispatch:
    """What writes a window's activations as products with this weight read them."""
    blocks = weight.shape[1] // BLOCK
    consts = {"IN_PAIRS": weight.format in IN_PAIRS}
    return preparation(shader, window, inputs, "blocks", blocks, consts, {"blocks": blocks}, faults=faults)


def _from_codes(call: Call, op: str, weight: Weight) -> Callable[[Window], Dispatch]:
    """What prepares codes and scales that are given."""
    inputs = (Binding("codes", call.tensor("codes"), view="words"), Binding("scales", call.tensor("scales")))
    return lambda window: _prepared("activations", window, inputs, weight, _activation_faults(op))


def _written_out(weight: Weight) -> dict[str, int]:
    """The constants of one_token.wgsl."""
    stretch = stretch_consts(weight.format)
    num_blocks = weight.shape[1] // BLOCK
    return {**stretch, "BLOCKS": num_blocks, "STRETCHES": ceil_div(num_blocks, stretch["STRETCH"])}


def _product(
    call: Call, prepare: Callable[[Window], Dispatch], num_tokens: int, weight: Weight, bias: Operand | None, y: Operand
) -> list[Dispatch]:
    """y = activations @ weight^T + bias, window by window."""
    num_blocks = weight.shape[1] // BLOCK
    params = {"blocks": num_blocks}
    found = []
    dots, record_words = ("nibble_dots", 20) if weight.format in IN_PAIRS else ("byte_dots", 12)
    snippets = (f"block_{weight.format}", dots)
    for window in windows(call, num_tokens, record_words * num_blocks):
        found.append(prepare(window))
        if num_tokens == 1 and num_blocks <= MOST_WRITTEN_OUT:
            consts = _written_out(weight)
            found += products("one_token", window, weight, bias, y, consts, params, snippets, ONE_TOKEN_GROUP)
        else:
            consts = stretch_consts(weight.format)
            found += products("blocks", window, weight, bias, y, consts, params, snippets)
    return found


@implements("gemm_q8", when=block_weight, prepack={"weight": pack})
def gemm_q8(call: Call) -> list[Dispatch]:
    weight, codes = call.weight("weight"), call.tensor("codes")
    prepare = _from_codes(call, "gemm_q8", weight)
    return _product(call, prepare, codes.shape[0], weight, call.optional("bias"), call.outputs[0])


@implements("gemm", when=_block_gemm, prepack={"weight": pack})
def gemm_blocks(call: Call) -> list[Dispatch]:
    weight, x = call.weight("weight"), call.tensor("x")
    inputs, faults = (Binding("x", x),), {"BAD_X": fault("gemm", *REFUSED)}

    def prepare(window: Window) -> Dispatch:
        return _prepared("quantized", window, inputs, weight, faults)

    return _product(call, prepare, x.shape[0], weight, call.optional("bias"), call.outputs[0])


@implements("gemm_silu_q8", when=block_weight, prepack={"weight": pack})
def gemm_silu_q8(call: Call) -> list[Dispatch]:
    weight, num_tokens = call.weight("weight"), call.tensor("codes").shape[0]
    if not num_tokens:
        return []
    num_rows, num_blocks = weight.shape[0], weight.shape[0] // 2 // BLOCK
    memory = call.scratch(num_tokens * num_rows)
    both = Operand("f32", (num_tokens, num_rows), memory.buffer, 0, num_rows)
    found = _product(call, _from_codes(call, "gemm_silu_q8", weight), num_tokens, weight, None, both)
    bindings = (
        Binding("x", both),
        Binding("y_codes", call.outputs[0], "write", "words"),
        Binding("y_scales", call.outputs[1], "write"),
    )
    gate = Dispatch(
        "products/gate",
        bindings,
        linear(ceil_div(num_tokens * num_blocks, GROUP)),
        consts={"GROUP": GROUP, "BLOCKS": num_blocks},
        params={"num_tokens": num_tokens},
        faults={"BAD_X": fault("quantize_q8", *REFUSED)},
    )
    return [*found, gate]
