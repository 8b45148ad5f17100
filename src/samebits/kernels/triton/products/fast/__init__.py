"""gemm_q8 and gemm_silu_q8 in the fast tier: float16 tensor cores on dequantized weights.

tokens     served by
1 to 8     blocks/few: exact, each weight is read once
9 to 128   op.py: weights become float16 in registers
more       dequant.py fills memory with float16 weights, dense/descriptors.py multiplies; gate.py where a gate follows
"""
