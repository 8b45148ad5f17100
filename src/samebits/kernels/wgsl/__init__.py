"""Kernels in WGSL, for Vulkan, Metal and D3D12 through wgpu. Nothing here needs wgpu: shaders are text.

folder      ops
attention   paged_attention
caches      append_paged_kv_cache, rope_and_append, rope_both_and_append, copy_kv_pages, convert_kv_layout
products    gemm, gemm_q8, gemm_silu_q8
rows        norms, softmax, activations, rope, quantize_q8, embedding, elementwise, columns
select      argmax, top_k, top_k_mask_logits, sample
probe       none: what a device's arithmetic is asked at start
snippets    what shaders share, one idea per file, composed by name
lib         how a kernel states a dispatch, and how its shader's text is put together; imports none of them

A kernel is a Python file beside its .wgsl: the first says what is bound and how far the grid goes, the second computes.
table.py lists the files that register kernels, in order of preference.
"""
