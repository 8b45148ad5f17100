"""Choosing by size and sampling over rows of logits: all portable, float32 only, rows of at most 2^19.

op                 served by
all but sample     short.py where rows have at most 64 elements
argmax             arg_max.py: the first place of every part of a row (extent), then of the row (pick)
top_k              top_k.py: the last place kept (cut.py), what lies before it (gather), each one's rank (rank)
top_k_mask_logits  top_k.py: the last place kept, then what is behind it (mask)
sample             sample.py: bias and penalties (shape), extent, cut.py for top-k and again for top-p, the draw, pick

cut.py finds the last place of a ranking that is kept, by sums of integers that have no order: the weight of 256 buckets
of values in every part of a row (weigh), the bucket in which the sum is reached (choose), what lies in it (gather), and
in that the place itself (finish). parts.py says how rows are cut into parts, refusals.py what `sample` refuses.
"""
