"""More than eight tokens times block-quantized weights; launch.py chooses.

weights          device   served by
one              NVIDIA   warps.py: int8 matrix instructions (tiles.py, words.py, terms.py); the interpreter too
one              AMD      dot.py: tl.dot on int8
one per segment  any      dot.py

activations.py makes int8 blocks and arranges them as warps.py reads them.
"""
