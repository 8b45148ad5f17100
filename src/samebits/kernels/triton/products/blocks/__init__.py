"""Products of int8 blocks with block-quantized weights: portable.

op                                tokens   served by
gemm_q8, gemm_silu_q8, gemm       1 to 8   few/: the weights are read once, at the speed of memory
gemm_q8, gemm_silu_q8, gemm       more     many/
grouped_gemm                      any      grouped.py, by many/dot.py
head_gemm                         any      heads.py, by many/dot.py

ops.py registers them, checks.py refuses what quantize_q8 does not make, terms.py has the arithmetic of a block, and
silu.py ends gemm_silu_q8.
"""
