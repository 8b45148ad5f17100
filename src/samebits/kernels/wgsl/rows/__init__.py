"""Ops that go row by row or element by element: all portable, float32 activations; weights in any float format.

op                                                          served by
add, mul, scale, sigmoid_and_mul, soft_cap                  elementwise.py
silu_and_mul, gelu_and_mul, clamped_swiglu                  gated.py
split_heads, merge_heads, slice_columns, concat_columns     columns.py, where a window does not do
rms_norm, fused_add_rms_norm, layer_norm, l2_norm           norm.py
gated_rms_norm                                              norm.py
add_rms_norm_q8                                             norm_q8.py
quantize_q8                                                 quantize.py
rope                                                        rope.py
softmax                                                     softmax.py
cast                                                        cast.py, of every float format into every other

The first three are one shader: elements.py launches it with a function of snippets/pairs.
"""
