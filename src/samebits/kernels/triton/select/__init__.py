"""Selection and sampling over rows of logits: all portable.

op                                    served by
top_k, top_k_mask_logits, argmax      top_k.py: passes.py narrows a row (narrow.py), finish.py ends it
sample                                sample.py: top-k and top-p in the same way, then threefry.py's noise

keys.py orders floats as integers, sample_checks.py has what sample refuses.
"""
