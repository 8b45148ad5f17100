"""Selection and sampling over rows of logits, and the choice of experts: all portable.

op                                    served by
top_k, top_k_mask_logits, argmax      top_k.py: passes.py narrows a row (narrow.py), finish.py ends it
sample                                sample.py: top-k and top-p in the same way, then threefry.py's noise
route                                 route.py: a program a token
expert_layout                         expert_layout.py: a program an expert

keys.py orders floats as integers, sample_checks.py has what sample refuses.
"""
