"""Paged caches, written and moved: all portable, all formats that a cache may have.

op                                       served by
append_paged_kv_cache, rope_and_append   append.py: keys, then values; append.wgsl plain ones, append_blocks.wgsl blocks
"""
