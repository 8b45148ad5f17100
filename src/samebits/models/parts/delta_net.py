"""Gated delta nets: a convolution, a state per value head that keys write and queries read, a gated norm."""

from __future__ import annotations

import math

from samebits.graph import Value
from samebits.models.architecture import Weight
from samebits.models.parts.builder import ModelParts
from samebits.models.parts.conv import causal_conv
from samebits.models.parts.keys import MAX_HEAD_SIZE, MAX_HEADS, MAX_TAPS, MAX_WIDTH, REQUIRED, Source, whole
from samebits.models.parts.recurrence import DeltaNet, sizes_of
from samebits.models.parts.state import Slot
from samebits.ops.slots import CHUNK

L2_EPS = 1e-6  # of the norms on queries and keys; no file stores it

#                        GGUF                  Hugging Face                bounds            where it is absent
KEYS = {
    "num_key_heads":   whole("ssm.group_count",    "linear_num_key_heads",   1, MAX_HEADS, 16, gguf_default=REQUIRED),
    "num_value_heads": whole("ssm.time_step_rank", "linear_num_value_heads", 1, MAX_HEADS, 32, gguf_default=REQUIRED),
    "key_size":        whole("ssm.state_size",     "linear_key_head_dim",    1, MAX_HEAD_SIZE, 128,
                             gguf_default=REQUIRED),
    "value_size":      whole(None,                 "linear_value_head_dim",  1, MAX_HEAD_SIZE, 128, gguf_default=None),
    "inner_size":      whole("ssm.inner_size",     None,                     1, MAX_WIDTH, None, gguf_default=REQUIRED),
    "num_taps":        whole("ssm.conv_kernel",    "linear_conv_kernel_dim", 2, MAX_TAPS, 4, gguf_default=REQUIRED),
}  # fmt: skip
#                   ours         shape            GGUF           Hugging Face
TENSORS = (
    Weight("delta.taps",     "Channels Taps", "ssm_conv1d",  "linear_attn.conv1d", is_f32=True,
           hf_shape="Channels 1 Taps"),
    Weight("delta.decay",    "Heads",         "ssm_a",       "linear_attn.A_log", is_f32=True, bare="both",
           hf_is_log=True),
    Weight("delta.dt_bias",  "Heads",         "ssm_dt.bias", "linear_attn.dt_bias", is_f32=True, bare="both"),
    Weight("delta.norm",     "ValueSize",     "ssm_norm",    "linear_attn.norm"),
    Weight("delta.out",      "H Values",      "ssm_out",     "linear_attn.out_proj"),
)  # fmt: skip


def read_delta_net(source: Source, is_tiled: bool) -> DeltaNet:
    """The sizes of a model's delta nets."""
    values = source.values(KEYS)
    inner_size, num_heads = values.pop("inner_size"), values["num_value_heads"]
    if num_heads % values["num_key_heads"]:
        raise source.fail("value heads", num_heads, f"a multiple of the {values['num_key_heads']} key heads")
    if inner_size is not None and inner_size % num_heads:
        raise source.fail("ssm.inner_size", inner_size, f"a multiple of the {num_heads} value heads")
    values["value_size"] = values["value_size"] or inner_size // num_heads
    return DeltaNet(**values, is_tiled=is_tiled)


def delta_net(m: ModelParts, x: Value, layer: int) -> Value:
    """One layer; its projections are `qkv`, `z` (the gate), `b` (what a key overwrites) and `a` (the decay)."""
    b, c, name = m.b, sizes_of(m.config.recurrence, DeltaNet), f"layers.{layer}.delta"
    mixed = causal_conv(m, m.linear(x, f"{name}.qkv"), name, "silu")
    keys, end = c.num_key_heads * c.key_size, c.dims()["Channels"]
    q, k = (
        b.l2_norm(b.split_heads(b.slice_columns(mixed, start=at, stop=at + keys), heads=c.num_key_heads), eps=L2_EPS)
        for at in (0, keys)
    )
    v = b.split_heads(b.slice_columns(mixed, start=2 * keys, stop=end), heads=c.num_value_heads)
    state = m.state(f"{name}.state", Slot((c.num_value_heads, c.key_size, c.value_size), is_resumable=True))
    ring = m.state(f"{name}.ring", Slot((CHUNK, end - keys + c.num_value_heads), is_resumable=False))
    o, state, ring = b.gated_delta_rule(
        q,
        k,
        v,
        m.linear(x, f"{name}.a"),
        m.linear(x, f"{name}.b"),
        decay=m.weight(f"{name}.decay"),
        dt_bias=m.weight(f"{name}.dt_bias"),
        state=state,
        ring=ring,
        scale=1.0 / math.sqrt(c.key_size),
        v_heads="tiled" if c.is_tiled else "grouped",
        **m.sequences(),
    )
    m.written(state, ring)
    gate = b.split_heads(m.linear(x, f"{name}.z"), heads=c.num_value_heads)
    gated = b.gated_rms_norm(o, gate, m.weight(f"{name}.norm"), eps=m.config.rms_eps, gate_first=False, groups=1)
    return m.linear(b.merge_heads(gated), f"{name}.out")
