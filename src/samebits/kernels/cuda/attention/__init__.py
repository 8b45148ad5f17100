"""Attention of prompts in the fast tier, for head sizes of 64 and 128 and pages that copies can take.

prefill.cu      the kernel
sequences.cuh   the sequences of a batch
tiles.cuh       their tiles of rows, and the positions that these see
softmax.cuh     scores to weights
operands.cuh    boxes of the cache, matrices in shared memory, pairs of numbers
launch.py       what is served, in which form, and the launch
"""
