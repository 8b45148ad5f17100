"""Heads of more than 256 elements over 16-bit caches, many query heads to a KV head: latent attention.

sequences of   served by
one query      decode.py: scores, values by cuts and columns, then ../decode_join.py
more           prompt.py

A program takes up to 64 query heads, so that a row of the cache is read once for all of them. No register file holds
the sums of 64 rows of 512 values: columns go in pieces. scores.py has the products with keys, launch.py the launches.
"""
