"""Attention for head sizes of 64 and 128 over 16-bit caches, of the fast tier and of the portable one.

sequences.cuh   the sequences of a batch; batch.py: as they are handed over
boxes.cuh       copies of a cache's boxes; boxes.py: what they ask of a call
counters.cuh    pieces of work that blocks draw

prefill.py      what prefill.cu serves, in which form, and its launch
prefill.cu      the kernel
tiles.cuh       a batch's tiles of rows, and the positions that these see
softmax.cuh     scores to weights
operands.cuh    matrices in shared memory, pairs of numbers

few.py          what few.cu serves, of sequences with few queries, and its launch
few.cu          the kernel; few.cuh: what the warps of a block share
pieces.cuh      how blocks share the sequences
fragments.cuh   keys and values as operands
walk.cuh        scores, weights and sums of a warp
joining.cuh     results, from the sums of warps and pieces

portable.py     what both kernels of the portable tier ask of a call, and the definition's constants
numbers.cuh     the definition's arithmetic

decode.py       what decode.cu serves, of sequences with one query, and its launch
decode.cu       the kernel
stretches.cuh   how blocks share the sequences
block.cuh       what the warps of a block share
runs.cuh        copies of keys and values
keys.cuh        scores
values.cuh      weights, and their sums with values
rows.cuh        results

prompts.py      what prompts.cu serves, of sequences with several queries, and its launch
prompts.cu      the kernel; prompt.cuh: what the warps of a block share
prompt_copies.cuh     copies of keys, values and scores
prompt_operands.cuh   keys and values as float32, scores as weights
prompt_scores.cuh     products of queries and keys
prompt_values.cuh     sums of weights times values
"""
