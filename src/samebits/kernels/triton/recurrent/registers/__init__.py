"""Prompts in a thread's registers: heads of 32, 64 or 128 by values in blocks of 32, on NVIDIA's GPUs.

A program keeps 32 columns of one head's state, or 16, in registers over all chunks of a sequence: a warp has a quarter
of K, a thread a run of 8 elements and a few columns. Most of it is PTX in strings, with a plain branch for the
interpreter.

weights.py  the weights of chunks' rows, in a launch before it
kernel.py   the kernel: sequences, chunks, outputs
steps.py    a chunk's steps: dots with the state, the rows' u, the state's move
memory.py   where things lie in shared memory, and the copies of a chunk
ptx.py      writes the text of the steps
"""
