"""Attention for head sizes of 64 and 128 over 16-bit caches: of prompts in the fast tier, of decodes in the portable.

sequences.cuh   the sequences of a batch; batch.py: as they are handed over
boxes.cuh       copies of a cache's boxes

prefill.py      what prefill.cu serves, in which form, and its launch
prefill.cu      the kernel
tiles.cuh       a batch's tiles of rows, and the positions that these see
softmax.cuh     scores to weights
operands.cuh    matrices in shared memory, pairs of numbers

decode.py       what decode.cu serves, and its launch
decode.cu       the kernel
stretches.cuh   how blocks share the sequences
block.cuh       what the warps of a block share
runs.cuh        copies of keys and values
keys.cuh        scores
values.cuh      weights, and their sums with values
rows.cuh        results
numbers.cuh     the definition's arithmetic
"""
