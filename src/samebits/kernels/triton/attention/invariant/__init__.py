"""paged_attention in the tier invariant: tensor cores, and results that depend on a query and its cache alone.

Positions are taken in blocks, and blocks in splits of SPLIT positions, both at absolute positions. Within a split the
softmax is online, block by block; splits are joined in order (tile.py). A block or split that a query does not see
changes none of its bits. So rows may be put into any tile, and splits be computed anywhere:

rows of a sequence (queries x group)   served by
up to 64; any where no call has more   decode.py: a fixed number of programs share all splits; join.py
more than 64                           prefill.py: a tile of rows a program

Blocks and splits depend on the head size alone. Both kernels must use matrix instructions that give the same bits:
`invariance_doubt` in lib/devices.py says on which GPUs they may not, and there the kernels refuse the tier.
"""
