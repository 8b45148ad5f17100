"""Up to eight tokens times block-quantized weights; launch.py chooses.

tokens   device   served by
1        any      one.py: a thread owns a row and a chunk of 8 blocks (chunks.py, shared.py)
2 to 8   NVIDIA   tokens.py: int8 tensor instructions in PTX (mma.py); the interpreter too
2 to 8   AMD      one.py, token by token

experts.py: pairs of tokens and experts, by one.py on any device.
"""
