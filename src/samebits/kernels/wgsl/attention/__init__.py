"""Attention over paged caches: portable, all formats that a cache may have.

op               served by
paged_attention  tile.py: a workgroup for some queries and heads over all positions they see

Snippets in snippets/attention are the parts: pairs of a tile, keys, logits, values.
"""
