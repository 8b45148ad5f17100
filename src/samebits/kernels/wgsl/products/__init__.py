"""Matrix products, and rows of a table by id: what reads packed weights.

file        op                       weight          shaders, in the order they run
blocks      gemm_q8                  block formats   activations, blocks or one_token
            gemm                     block formats   quantized, blocks or one_token
            gemm_silu_q8             block formats   activations, blocks or one_token, gate
dense       gemm                     f32, f16, bf16  operands, dense
embedding   embedding                all of these    embed_blocks or embed_dense, one for each chunk of the table
packing     pack: all of them agree on it; block_parts takes the block formats apart
windows     tokens in stretches whose activations fit into a uniform binding

A block format is written once, in snippets/block_<format>.wgsl: how a cut's head and a block's codes are loaded, its
term and its elements. The rest is shared.

Weights are textures and activations uniform buffers, because a load from a storage buffer costs the software driver a
loop over its lanes with a branch for every word: of a vec4 for four lanes it takes some 190 ns, of a texel 20 or 43, of
a uniform vec4 25, or 2 where its place is a constant. The texel of 43 ns is that of a sampled texture, a call that
looks up sizes and level each time; still, products of 8 tokens are 6 % faster with it. On GPUs both have caches of
their own.

Steps of speed on that driver, 10^9 multiplications a second of one core (Neoverse N1), Q4_1, 1 token and 8 or more:
    storage buffers, a row and a token an invocation   0.04  0.1
    textures and uniform buffers                       0.7   1.3
    4 rows, up to 8 tokens an invocation               1.0   2.0
    4-bit codes two at a time in one multiplication    1.07  2.1
    8 rows for 8 tokens an invocation                  1.07  2.75
    storage textures instead of sampled ones           1.35
    for one token, a row's blocks written out          1.85
Written out in full, the 8 blocks of a cut were slower; 8 rows for one token gave 1.15, but leave GPUs idle.
Written out with 1 or 2 rows an invocation, one token took 1.6 and 1.25 times as long as with 4.
"""
