"""Ops whose sequences keep a state each, in a slot: all portable, float32.

op            sequences of   served by
causal_conv   any            conv.py: one launch, first tokens and carries by sequence, the other tokens by themselves

runs.py finds a sequence's tokens, its slot and its place in a chunk.
"""
