"""Products of block-quantized weights, from 2 tokens on: weights stream through shared memory, in bulk copies.

fast.cu      float16 tensor cores: the fast tier, where neither of the others serves it
halves.cuh   block weights as float16, for fast.cu and wide.cu
exact.cu     int8 tensor cores, with terms.cuh: portable; the fast tier's too for few tokens
wide.cu      float16 matrix instructions of warpgroups, with tokens.cuh: the fast tier for up to 128 tokens
gating.cuh   the end of wide.cu for gemm_silu_q8
copying.cuh  weights and activations on their way into shared memory
formats.cuh  the tiled weights of kernels/triton/lib/weights.py, in shared memory
shapes.py    which form serves how many tokens and rows
laid_out.py  activations in the order of exact.cu or wide.cu, made with their rows
launch.py    what is served at all, and the launches
"""
