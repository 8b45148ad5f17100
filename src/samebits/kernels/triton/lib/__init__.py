"""What the kernels of all folders share; nothing here imports one of them.

registry     `implements`, and the options of every launch
tensors      what launchers take: a torch tensor, `Blocks`, `Tiled`
weights      block-quantized weights in tiles of 16 rows: `Tiled`
devices      whose GPU it is, and how many multiprocessors it has; GPUs that are only described
builds       launches as something to compile, noted and not made
disk_cache   compiled kernels on disk, under the same names everywhere; shorter_compiling: a pass that is left out
elementary   the canonical functions; settling: what every kernel stores; codes: numbers of block formats
rows         how a tensor is walked row by row, sums in row order
int8_blocks  activations in int8 blocks of 32, gated ones too
cache_views  a paged cache as strided views, whatever its form
limits       bounds of float types
sizes        sizes of launches on the host; grids: grids that fit, and the rule for offsets
faults       the reasons a kernel may give, by number
scratch      counters that outlive a launch
chaining     launches that begin before the one before has ended
flushing     kernels that flush subnormals; probing: what a device is asked before it is trusted
"""
