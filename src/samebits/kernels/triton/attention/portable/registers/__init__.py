"""Prefill attention in a thread's registers. Most of it is PTX in strings, with a plain branch for the interpreter.

kernel.py     the kernel: items, maxima, sums, results
scores.py     queries and keys to scores and maxima
values.py     scores to weights, weights and values to sums
products.py   the two products of a tile: the text of ptx.py, or plain Triton
memory.py     loads, stores and copies of a thread's own: PTX, or plain Triton
ptx.py        writes the text of the two products
"""
