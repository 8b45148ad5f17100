"""Products of int8 blocks with block-quantized weights: portable.

op                                tokens   served by
gemm_q8, gemm_silu_q8, gemm       1 to 8   few/: the weights are read once, at the speed of memory
gemm_q8, gemm_silu_q8, gemm       more     many/
grouped_gemm                      any      grouped.py, by many/dot.py
head_gemm                         any      heads.py, by many/dot.py

op                                             pairs           served by
expert_gemm_q8, expert_gate_q8, expert_gemm    up to 64, and   few/experts.py: every expert that was chosen is read
                                               2 an expert     once, at the speed of memory
expert_gemm_q8, expert_gate_q8, expert_gemm    more            many/experts.py; many/experts_dot.py on AMD

ops.py and experts.py register them, checks.py refuses what quantize_q8 does not make, terms.py has the arithmetic of a
block, and gated.py ends gemm_silu_q8 and expert_gate_q8.
"""
