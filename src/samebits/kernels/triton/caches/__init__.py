"""Paged caches, written and moved, and slots of states: all portable, all formats that a cache may have.

op                                       served by
append_paged_kv_cache, rope_and_append   append.py: one launch for keys and values
rope_both_and_append                     append_both.py: the same launch, with the query beside them
copy_kv_pages, copy_slots,
  convert_kv_layout                      pages.py: words, whatever their format

cells.py finds a token's cell and encodes for it.
"""
