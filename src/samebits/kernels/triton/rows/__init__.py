"""Ops that go row by row or element by element: all portable, f32, f16 and bf16.

op                                                    served by
rms_norm, fused_add_rms_norm, layer_norm, l2_norm     norm.py
gated_rms_norm                                        norm_gated.py
add_rms_norm_q8                                       norm_q8.py: up to 512 rows in registers, more are read twice
softmax                                               softmax.py: a program a row, or three passes over a long one
silu_and_mul, gelu_and_mul, clamped_swiglu            gated.py
combine                                               combine.py
quantize_q8                                           quantize.py
rope                                                  rope.py
embedding                                             embed.py, embed_blocks.py for tables in block formats
add, mul, sigmoid_and_mul, scale, cast, soft_cap      elementwise.py
split_heads, merge_heads, slice_columns               columns.py: views
concat_columns                                        columns.py
"""
