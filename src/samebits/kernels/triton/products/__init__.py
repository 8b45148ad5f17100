"""Matrix products.

op                                weight           tier        served by
gemm_q8, gemm_silu_q8             block formats    fast        fast/
gemm_q8, gemm_silu_q8, gemm       block formats    portable    blocks/
gemm                              f16, bf16        invariant   dense/tensor_cores.py
gemm                              f32, f16, bf16   portable    dense/exact.py
grouped_gemm                      block formats    portable    blocks/grouped.py
grouped_gemm                      f32, f16, bf16   portable    dense/grouped.py
head_gemm                         block formats    portable    blocks/heads.py
head_gemm                         f32, f16, bf16   portable    dense/heads.py
expert_gemm_q8, expert_gate_q8    block formats    portable    blocks/experts.py
expert_gemm                       block formats    portable    blocks/experts.py
expert_gemm                       f32, f16, bf16   portable    dense/experts.py

segments.py finds the segment, or the expert, of a row or a tile.
"""
