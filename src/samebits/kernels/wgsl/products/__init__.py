"""Matrix products, and rows of a table by id: what reads packed weights.

file        op                       weight          shaders, in the order they run
blocks      gemm_q8                  block formats   activations, blocks
            gemm                     block formats   quantized, blocks
            gemm_silu_q8             block formats   activations, blocks, gate
dense       gemm                     f32, f16, bf16  operands, dense
embedding   embedding                all of these    embed_blocks or embed_dense, one for each chunk of the table
packing     pack: all of them agree on it; block_parts takes the block formats apart
windows     tokens in stretches whose activations fit into a uniform binding

A block format is written once, in snippets/block_<format>.wgsl: how a cut's head and a block's codes are loaded, its
term and its elements. The rest is shared.

Weights are textures and activations uniform buffers, because a load from a storage buffer costs the software driver a
loop over its lanes with a branch for every word: of a vec4 for four lanes it takes about 190 ns, of a texel 40 and of a
uniform vec4 6 to 16. On GPUs both have caches of their own.
"""
