"""Kernels compile for GPUs that are not here, and the canonical arithmetic is not contracted there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import triton
import triton.language as tl
from triton import knobs
from triton.backends.compiler import GPUTarget

from samebits.backends.gpu.backend import CudaBackend
from samebits.core.errors import Unsupported
from samebits.kernels.triton.lib import elementary
from samebits.kernels.triton.lib.flushing import flushing
from samebits.kernels.triton.lib.registry import UNFUSED
from samebits.kernels.triton.lib.rows import store_narrow
from samebits.kernels.triton.rows import elementwise

TOOL = Path(__file__).parents[2] / "tools" / "compile_kernels.py"
FEW = "rms_norm,rope_and_append,gemm_q8,sample"  # something of everything
DENSE = "rms_norm,rope_and_append,gemm,sample"  # with the products that are compiled otherwise for each generation
FEW_BYTES = 32  # of a thread's registers that may be in memory: what a loop over pairs keeps beside a product
EXPERT_KERNELS = (
    "products.blocks.few.experts.expert_gemv_kernel",
    "products.blocks.many.experts.arrange_pairs",
    "products.blocks.many.experts.expert_warps",
    "products.dense.experts._expert_gemv",
    "products.dense.experts._expert_tiles",
)
CONTRACTED = {  # what a contracted product and sum, or flushed denormals, would look like
    GPUTarget("cuda", 80, 32): ("ptx", ("fma.", "mad.f", ".ftz")),
    GPUTarget("cuda", 90, 32): ("ptx", ("fma.", "mad.f", ".ftz")),
    GPUTarget("cuda", 100, 32): ("ptx", ("fma.", "mad.f", ".ftz")),
    GPUTarget("hip", "gfx942", 64): ("amdgcn", ("_fma_f", "_fmac_f", "_mad_f", "_mac_f", "_fmaak", "_fmamk")),
    GPUTarget("hip", "gfx1100", 32): ("amdgcn", ("_fma_f", "_fmac_f", "_mad_f", "_mac_f", "_fmaak", "_fmamk")),
}


@pytest.mark.parametrize(
    ("target", "ops"), [("sm_90", ""), ("gfx942", ""), ("sm_80", FEW), ("sm_100", DENSE), ("gfx1100", FEW)]
)
def test_every_kernel_function_compiles(target: str, ops: str) -> None:
    chosen = ["--ops", ops] if ops else []
    command = [sys.executable, str(TOOL), "--brief", "--jobs", "1", "--targets", target, *chosen]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    lines = run.stdout.splitlines()
    failed = [line for line in lines if line.startswith("FAILED")]
    assert run.returncode == 0, "\n".join(failed) or run.stderr
    if target == "sm_90":
        spilled = {fields[1]: int(fields[4]) for fields in map(str.split, lines) if ".experts." in "".join(fields)}
        assert set(spilled) == set(EXPERT_KERNELS)
        assert max(spilled.values()) <= FEW_BYTES, spilled


NARROW = {  # 16-bit arithmetic where float32 is meant
    GPUTarget("cuda", 80, 32): ("ptx", r"(add|mul|fma)[.\w]*[.](f16|bf16)"),
    GPUTarget("cuda", 90, 32): ("ptx", r"(add|mul|fma)[.\w]*[.](f16|bf16)"),
    GPUTarget("hip", "gfx942", 64): ("amdgcn", r"v_(pk_)?(add|mul|fma)_f16"),
}


@pytest.mark.parametrize("kind", ["add", "mul"])
@pytest.mark.parametrize("target", NARROW, ids=lambda target: str(target.arch))
def test_two_16_bit_types_meet_in_float32(target: GPUTarget, kind: str) -> None:
    """A compiler that looks at mantissas alone would round the bfloat16 operand to float16 and add there."""
    strides = dict.fromkeys(("K", "num_blocks", "x_outer", "x_inner", "y_outer", "y_inner"), "i32")
    signature = {"x_ptr": "*fp16", "y_ptr": "*bf16", "z_ptr": "*fp16", **strides}
    constants = {"X_GROUP": 1, "Y_GROUP": 1, "KIND": kind, "BLOCK": 1024, "CHAINED": False}
    signature |= dict.fromkeys(constants, "constexpr")
    source = triton.compiler.ASTSource(elementwise.binary_kernel, signature, constants)
    language, refused = NARROW[target]
    text = triton.compile(source, target=target, options=dict(UNFUSED)).asm[language]
    assert sorted({match.group() for match in re.finditer(refused, text)}) == []


@triton.jit
def everything_kernel(x_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i)
    x = elementary.exp(x) + elementary.recip(x) + elementary.rsqrt(x) + elementary.log(x) + elementary.log2(x)
    x = elementary.sigmoid(x) + elementary.tanh(x) + elementary.erf(x) + elementary.erfc(x) + elementary.softplus(x)
    tl.store(x_ptr + i, elementary.soft_capped(elementary.round_to_int(x), 30.0, 0.033333335))


@pytest.mark.parametrize("target", CONTRACTED, ids=lambda target: str(target.arch))
def test_canonical_arithmetic_is_compiled_as_written(target: GPUTarget) -> None:
    source = triton.compiler.ASTSource(everything_kernel, {"x_ptr": "*fp32", "BLOCK": "constexpr"}, {"BLOCK": 256})
    language, refused = CONTRACTED[target]
    text = triton.compile(source, target=target, options=dict(UNFUSED)).asm[language]
    assert [word for word in refused if word in text] == []
    fused = triton.compile(source, target=target, options={"enable_fp_fusion": True}).asm[language]
    assert any(word in fused for word in refused), "the test no longer knows a contraction when it sees one"


@triton.jit
def mixed_kernel(x_ptr, y_ptr, BLOCK: tl.constexpr):
    """Canonical arithmetic, inline assembly, a maximum that keeps NaN and a rounding to float16."""
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i)
    y = elementary.exp(x) - tl.maximum(x, 1.0, propagate_nan=tl.PropagateNan.ALL)
    y = tl.inline_asm_elementwise("{ fma.rn.f32 $0, $1, $2, $1; }", "=f,f,f", [y, x], tl.float32, True, 1)
    store_narrow(y_ptr + i, y, i < BLOCK)


COMPUTES = re.compile(r"(?<![\w.])(?:add|sub|mul|fma|min|max|abs|neg|setp\.\w+)[.\w]*\.f32(?=\s)")


@pytest.mark.parametrize("arch", [80, 90])
def test_flushing_kernels_flush_in_every_instruction_and_the_others_in_none(arch: int) -> None:
    signature = {"x_ptr": "*fp32", "y_ptr": "*fp16", "BLOCK": "constexpr"}
    source = triton.compiler.ASTSource(mixed_kernel, signature, {"BLOCK": 256})

    def compiled(**mode: str) -> triton.compiler.CompiledKernel:
        return triton.compile(source, target=GPUTarget("cuda", arch, 32), options={**UNFUSED, **mode})

    plain = compiled()
    with flushing():
        mode = knobs.compilation.instrumentation_mode  # what a launch adds to a kernel's options
        made = compiled(instrumentation_mode=mode)
    instructions = {text: COMPUTES.findall(text) for text in (plain.asm["ptx"], made.asm["ptx"])}
    assert len(instructions[plain.asm["ptx"]]) == len(instructions[made.asm["ptx"]]) > 10
    assert ".ftz" not in plain.asm["ptx"]
    assert [i for i in instructions[made.asm["ptx"]] if ".ftz" not in i] == []
    assert made.hash != plain.hash, "the two would take each other's place in the cache"
    assert compiled().asm["ptx"] == plain.asm["ptx"]


def test_a_triton_that_cannot_be_asked_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("samebits.kernels.triton.lib.flushing.HOOK", "a_hook_of_another_version")
    with pytest.raises(Unsupported, match=r"this Triton has no .*a_hook_of_another_version"), flushing():
        pass
    assert CudaBackend().flushing() is None, "verify would stop at it"


def test_flushing_ends_with_its_block() -> None:
    with flushing():
        assert CudaBackend().flushing() is None, "it is in use"
    with pytest.raises(ZeroDivisionError), flushing():
        raise ZeroDivisionError
    assert CudaBackend().flushing() is not None
    assert knobs.runtime.add_stages_inspection_hook is None
    assert knobs.compilation.instrumentation_mode == ""
