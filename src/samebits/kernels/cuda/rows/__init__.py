"""Rows on their way into the products of the fast tier: int8 blocks, and beside them what wide.cu multiplies.

blocks.cu   rows, or normalised sums with a residual, as int8 blocks and as fragments
blocks.py   its launch, and the calls that it serves
"""
