"""paged_attention in the fast tier: tensor cores, online softmax. op.py says what is refused.

rows of a sequence (queries x group)   served by
up to 64; any where no call has more   decode.py: a fixed number of programs share all cached blocks
more than 64                           kernels/cuda/attention where it serves, else prefill.py: a tile of rows a program

Latent caches of any number of rows: latent.py, where latent_op.py does not refuse them. call.py has what both share.
"""
