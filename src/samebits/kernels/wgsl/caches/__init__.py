"""Paged caches, written and moved: all portable, all formats that a cache may have.

op                                           served by
append_paged_kv_cache, rope_and_append       append.py: keys, then values; blocks by append_blocks.wgsl
copy_kv_pages, copy_slots, convert_kv_layout  pages.py: words, or blocks with their scales
"""
