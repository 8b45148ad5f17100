"""Attention over paged caches: portable, all formats that a cache may have.

op               queries                        served by
paged_attention  the only one of its sequence   decode.py: by cuts of 256 positions, in three passes
                 all others                     tile.py: a workgroup for up to 4 pairs of a query and a head

op.py chooses, call.py holds what both share. The parts are in snippets/attention: pairs, keys, logits, values.
"""
