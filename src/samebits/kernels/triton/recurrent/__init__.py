"""Ops whose sequences keep a state each, in a slot: all portable, float32.

op                            sequences of     served by
causal_conv                   any              conv.py: one launch, carries by sequence, most tokens by themselves
gated_delta_rule, ssm_scan    several tokens   registers/: K of 32, 64 or 128, V in blocks of 32, on NVIDIA's GPUs
                                               weights.py, then prefill.py: any other K up to 256
                                               at fast, the delta rule: tensor_cores.py after the weights of registers/
                              one token        decode.py, which also leaves k and G of all in the rings

delta.py and ssm.py are the ops, launch.py their launches: three kernels over one batch, each leaves out what is
another's. row_form.py has the steps they share, runs.py finds a sequence's tokens, its slot and its chunks.

           weights.py                    prefill.py                          decode.py
 program   a chunk, a key head           WIDTH columns of a head,            WIDTH columns of a head of a
                                         one sequence, chunk by chunk        sequence
 leaves    weights, gates, k, q turned   o, state, u in the ring             o, state, u; k and G in the ring
 reads S   never                         once per chunk, from the cache      once; writes it every 16th position
"""
