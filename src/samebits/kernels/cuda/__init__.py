"""Kernels in CUDA C++ for NVIDIA's Hopper, where Triton stands in the way: products of quantized weights, attention.

Compiled at run time by NVRTC, which comes with torch; no toolkit is needed. They are no kernels of their own to the
backend: the launchers in kernels/triton choose them where a device has them, and Triton's serve everywhere else.

nvrtc.py     source to machine code, in a cache on disk
modules.py   machine code to launches on torch's streams
hopper.py    the devices that are served
lib          headers of all: barriers and copies, matrix instructions of warpgroups, int8 blocks
products     the sources, and which of their forms serves when
attention    the same
rows         rows into int8 blocks, and into what products of the fast tier multiply
"""
