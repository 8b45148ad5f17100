"""Products with f32, f16 and bf16 weights.

op             tier        tokens       served by
gemm           invariant   1 to 16      tensor_cores.py; the interpreter takes it for any number
gemm           invariant   more         descriptors.py: tiles copied by descriptors
gemm           portable    1 to 8       few.py; up to 65,536 results too, which the interpreter leaves to exact.py
gemm           portable    more         exact.py
grouped_gemm   portable    any          grouped.py
head_gemm      portable    any          heads.py
expert_gemm    portable    any          experts.py: up to 64 pairs as few.py does it, more as exact.py does

Invariant ones take f16 and bf16 weights of N a multiple of 8 and K a multiple of 16. operands.py refuses operands.
"""
