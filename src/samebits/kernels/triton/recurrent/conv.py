"""causal_conv: one launch. A program does the first J = K - 1 tokens of a sequence and its carry, or a few others.

Only the first J tokens read a carry, and the program that does them is the one that writes it, so no program waits for
another. What lies in a carry afterwards is copied from inputs, never computed.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from samebits.core.tiers import Tier
from samebits.kernels.triton.lib.chaining import chained, wait_for_previous
from samebits.kernels.triton.lib.elementary import sigmoid
from samebits.kernels.triton.lib.faults import fault_word
from samebits.kernels.triton.lib.registry import UNFUSED, implements
from samebits.kernels.triton.lib.settling import settle
from samebits.kernels.triton.lib.sizes import cdiv
from samebits.kernels.triton.recurrent.runs import BATCH_SIZES, CHUNK, SEQ_BLOCK, run_faults, run_of

FAULTS = tl.constexpr(run_faults("causal_conv"))
TOKENS = 8  # of a program that reads no carry
CHANNELS = 256  # of a program


@triton.jit
def finished(total, bias, SILU: tl.constexpr):
    """What a sum of taps becomes."""
    total = settle(total + bias)
    if SILU:
        total = settle(total * sigmoid(total))
    return total


@triton.jit
def first_tokens(inputs, start, count, w_ptr, y_ptr, C, channel, inside, bias, J: tl.constexpr, SILU: tl.constexpr):
    """The outputs of a sequence's first J tokens, or of all; inputs: the J before it, then its first J."""
    weights = ()
    for j in tl.static_range(J + 1):
        weights = weights + (tl.load(w_ptr + channel * (J + 1) + j, mask=inside, other=0.0),)  # noqa: RUF005
    for i in tl.static_range(J):
        total = tl.zeros(channel.shape, tl.float32)
        for j in tl.static_range(J + 1):
            total = total + weights[j] * inputs[i + j]
        tl.store(y_ptr + (start + i) * C + channel, finished(total, bias, SILU), mask=inside & (i < count))


@triton.jit
def window(inputs, x_ptr, x_stride, start, skipped, channel, inside, J: tl.constexpr):
    """The J inputs behind the first `skipped` ones, as a tuple; `inputs` as above, further ones at x."""
    rows = ()
    for j in tl.static_range(J):
        row = tl.load(
            x_ptr + (start + skipped - J + j) * x_stride + channel, mask=inside & (skipped + j >= J), other=0.0
        )
        for m in tl.static_range(j, J):
            row = tl.where(skipped + j == m, inputs[m], row)
        rows = rows + (row,)  # noqa: RUF005
    return rows


@triton.jit
def sequence_part(
    x_ptr, x_stride, w_ptr, carry_ptr, y_ptr, C, start, count, slot, first, channel, inside, bias,
    J: tl.constexpr, SILU: tl.constexpr,
):  # fmt: skip
    """The first tokens of a sequence, and its carries after the step."""
    own = carry_ptr + slot * (2 * J) * C + channel
    # a sequence that resumes at a boundary has the carry of that boundary alone
    before = own + tl.where(first % CHUNK == 0, J * C, 0)
    inputs = ()
    for j in tl.static_range(J):
        inputs = inputs + (tl.load(before + j * C, mask=inside & (first > 0), other=0.0),)  # noqa: RUF005
    for i in tl.static_range(J):
        row = tl.load(x_ptr + (start + i) * x_stride + channel, mask=inside & (i < count), other=0.0)
        inputs = inputs + (row,)  # noqa: RUF005
    boundary = (first + count) // CHUNK * CHUNK
    last = window(inputs, x_ptr, x_stride, start, count, channel, inside, J)
    at_boundary = window(inputs, x_ptr, x_stride, start, tl.maximum(boundary - first, 0), channel, inside, J)
    tl.debug_barrier()  # the carry has been read by all
    for j in tl.static_range(J):
        tl.store(own + j * C, last[j], mask=inside)
        tl.store(own + (J + j) * C, at_boundary[j], mask=inside & (boundary > first))
    first_tokens(inputs, start, count, w_ptr, y_ptr, C, channel, inside, bias, J, SILU)


@triton.jit
def starts_of(token, qo_ptr, num_seqs):
    """The first row of the sequence of each of these rows."""
    start = token * 0
    at = 0
    while at < num_seqs:
        b = at + tl.arange(0, SEQ_BLOCK)[None, :]
        first = tl.load(qo_ptr + b, mask=b < num_seqs, other=0)
        start = tl.maximum(start, tl.max(tl.where(first <= token, first, 0), axis=1)[:, None])
        at += SEQ_BLOCK
    return start


@triton.jit
def token_part(
    x_ptr, x_stride, w_ptr, y_ptr, qo_ptr, C, num_seqs, num_tokens, nth, channel, inside, bias,
    J: tl.constexpr, SILU: tl.constexpr, TOKENS: tl.constexpr,
):  # fmt: skip
    """Tokens with J others of their sequence before them in this step; zeros for rows that are nobody's."""
    token = nth * TOKENS + tl.arange(0, TOKENS)[:, None]
    real = token < tl.minimum(tl.load(qo_ptr + num_seqs), num_tokens)  # ranges that leave the batch are a fault
    computed = real & (token - starts_of(token, qo_ptr, num_seqs) >= J)
    channel, inside = channel[None, :], inside[None, :]
    row = token.to(tl.int64)
    total = tl.zeros([TOKENS, channel.shape[1]], tl.float32)
    for j in tl.static_range(J + 1):
        weight = tl.load(w_ptr + channel * (J + 1) + j, mask=inside, other=0.0)
        total = total + weight * tl.load(x_ptr + (row - J + j) * x_stride + channel, mask=inside & computed, other=0.0)
    y = tl.where(computed, finished(total, bias[None, :], SILU), 0.0)
    tl.store(y_ptr + row * C + channel, y, mask=inside & (token < num_tokens) & (computed | (real == 0)))


@triton.jit(do_not_specialize=BATCH_SIZES)
def conv_kernel(
    x_ptr, w_ptr, carry_ptr, qo_ptr, positions_ptr, slots_ptr, bias_ptr, y_ptr, fault_ptr, x_stride, C,
    num_seqs, num_tokens, num_slots,
    J: tl.constexpr, SILU: tl.constexpr, TOKENS: tl.constexpr, CHANNELS: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    blocks = tl.cdiv(C, CHANNELS)
    channel = tl.program_id(0) % blocks * CHANNELS + tl.arange(0, CHANNELS)
    inside, nth = channel < C, tl.program_id(0) // blocks
    bias = tl.zeros([CHANNELS], tl.float32)
    if bias_ptr is not None:
        bias = tl.load(bias_ptr + channel, mask=inside, other=0.0)
    if nth < num_seqs:
        start, count, slot, first = run_of(
            nth, qo_ptr, positions_ptr, slots_ptr, num_tokens, num_slots, fault_ptr, FAULTS
        )
        wait_for_previous(CHAINED)
        if count > 0:
            sequence_part(
                x_ptr, x_stride, w_ptr, carry_ptr, y_ptr, C, start.to(tl.int64), count, slot, first, channel, inside,
                bias, J, SILU,
            )  # fmt: skip
    else:
        wait_for_previous(CHAINED)
        token_part(
            x_ptr, x_stride, w_ptr, y_ptr, qo_ptr, C, num_seqs, num_tokens, nth - num_seqs, channel, inside, bias,
            J, SILU, TOKENS,
        )  # fmt: skip


@implements("causal_conv", tier=Tier.PORTABLE)
def causal_conv(
    x: torch.Tensor,
    weight: torch.Tensor,
    carry: torch.Tensor,
    qo_indptr: torch.Tensor,
    positions: torch.Tensor,
    slots: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    activation: str = "none",
) -> tuple[torch.Tensor, torch.Tensor]:
    num_tokens, num_channels = x.shape
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if y.numel() == 0:
        return y, carry
    x, weight = x if x.stride(1) == 1 else x.contiguous(), weight.contiguous()
    conv_kernel[(cdiv(num_channels, CHANNELS) * (len(slots) + cdiv(num_tokens, TOKENS)),)](
        x, weight, carry, qo_indptr, positions, slots, bias, y, fault_word(x.device), x.stride(0), num_channels,
        len(slots), num_tokens, len(carry),
        weight.shape[1] - 1, activation == "silu", TOKENS, CHANNELS, num_warps=4, **chained(x.device), **UNFUSED,
    )  # fmt: skip
    return y, carry
