"""paged_attention in the portable tier: the reference's bits. op.py chooses, all kernels give the same bits.

call                                                             sequences of   served by
f16 or bf16 K and V, heads of 16 to 256, no custom mask,         one query      decode.py: scores, values, join
  pages of whole runs of 16                                      more, NVIDIA   prefill.py: registers/ or tiles.py
                                                                 more, AMD      general.py
every other                                                      any            general.py

prefill.py takes registers/ for heads of up to 128 in whole, aligned pieces of 8, and tiles.py for the others.
records.py has what both are called with.
"""
