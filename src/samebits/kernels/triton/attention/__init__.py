"""Attention over paged caches: paged_attention, and merge_state in merge.py.

tier       caches                               served by
fast       f16 or bf16, K and V alike           fast/
invariant  the same, on NVIDIA                  invariant/
portable   all, and what those refuse           portable/

call.py has what a call is on the host, sequences.py what it is on the device.
"""
