"""paged_attention in the portable tier: the reference's bits. op.py chooses, all kernels give the same bits.

call                                                             sequences of   served by
f16 or bf16 K and V, heads of 16 to 256, no custom mask,         one query      decode.py: scores, values, join
  pages of whole runs of 16                                      more, NVIDIA   prefill.py: registers/ or tiles.py
                                                                 more, AMD      general.py
f16 or bf16 K and V, heads of 257 to 1024, 8 query heads and     any, NVIDIA    wide/
  more to a KV head, no custom mask, pages of whole runs
every other                                                      any            general.py

prefill.py takes registers/ for heads of up to 128 in whole, aligned pieces of 8, and tiles.py for the others.
records.py has what both are called with.
"""
