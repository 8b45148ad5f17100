"""More than eight tokens times block-quantized weights; launch.py chooses.

weights          device   served by
one              NVIDIA   warps.py: int8 matrix instructions (tiles.py, words.py, terms.py); the interpreter too
one              AMD      dot.py: tl.dot on int8
one per segment  any      dot.py
one per pair     NVIDIA   experts.py: tiles of an expert's pairs, by warps.py; the interpreter too
one per pair     AMD      experts_dot.py: the same, by dot.py

results.py stores what warps.py sums, activations.py makes int8 blocks and arranges them as warps.py reads them.
"""
