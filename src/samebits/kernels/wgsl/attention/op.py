"""paged_attention: sequences with one query by decode.py, all others in tiles. No bit depends on which."""

from __future__ import annotations

from samebits.kernels.record import OpCall
from samebits.kernels.wgsl.attention.call import sizes_of
from samebits.kernels.wgsl.attention.decode import decode, serves_decode
from samebits.kernels.wgsl.attention.tile import tiles
from samebits.kernels.wgsl.lib.cache_views import whole_words
from samebits.kernels.wgsl.lib.launch import Call, Dispatch
from samebits.kernels.wgsl.lib.registry import implements, only_f32

LARGEST_HEAD = 1024  # elements; the tree of float_keys.wgsl ends there


def _refusal(call: OpCall) -> str | None:
    head_size = call.inputs["q"].shape[-1]
    if isinstance(head_size, int) and head_size > LARGEST_HEAD:
        return f"wgsl takes heads of {LARGEST_HEAD} elements at most, not {head_size}"
    return only_f32("q")(call) or whole_words(call)


@implements("paged_attention", when=_refusal)
def paged_attention(call: Call) -> list[Dispatch]:
    sizes = sizes_of(call)
    if sizes.num_tokens == 0:
        return []
    by_cuts = serves_decode(call, sizes) and (sizes.num_sequences > 1 or sizes.num_tokens == 1)
    if not by_cuts:
        return [tiles(call, sizes, skips_single=False)]
    found = decode(call, sizes)
    return found if sizes.num_tokens == 1 else [*found, tiles(call, sizes, skips_single=True)]
