"""V pass of one-query attention over 16-bit caches: P from the scores, one partial sum a cut."""

from __future__ import annotations

import triton
import triton.language as tl

from samebits.kernels.triton.attention.portable.work import decode_cuts, decode_share, decode_tiles
from samebits.kernels.triton.attention.sequences import CUT, RUN, as_operand, page_of, sequences
from samebits.kernels.triton.lib.chaining import wait_for_previous
from samebits.kernels.triton.lib.elementary import bits, exp, from_bits
from samebits.kernels.triton.lib.limits import NEG_INF


def _chain(heads: int) -> str:
    """PTX: the chain over the 16 positions of a run, in every lane for the head that its number ends with.

    Operand 1 + n, lane l holds position (32 n + l) / heads of head l % heads.
    """
    steps = "".join(
        f"""
    add.u32 at, head, {i * heads % 32};
    shfl.sync.idx.b32 t, ${1 + i * heads // 32}, at, 0x1f, 0xffffffff;
    add.rn.f32 $0, $0, t;"""
        for i in range(16)
    )
    start = f"mov.u32 head, %laneid; and.b32 head, head, {heads - 1}; mov.f32 $0, 0f00000000;"
    return f"{{ .reg .f32 t; .reg .u32 head, at; {start} {steps} }}"


CHAIN_2, CHAIN_4, CHAIN_8 = (tl.constexpr(_chain(n)) for n in (2, 4, 8))
PICK = tl.constexpr("shfl.sync.idx.b32 $0, $1, $2, 0x1f, 0xffffffff;")


@triton.jit
def chain_of_run(p, H_PAD: tl.constexpr, SHUFFLE: tl.constexpr):
    """[R, 32]: the chains over a run's positions of p, see load_scores; column c is that of head c % H_PAD."""
    if SHUFFLE:
        if H_PAD == 2:
            return tl.inline_asm_elementwise(CHAIN_2, "=&f,f", [p[0]], tl.float32, False, 1)
        elif H_PAD == 4:
            return tl.inline_asm_elementwise(CHAIN_4, "=&f,f,f", [p[0], p[1]], tl.float32, False, 1)
        else:
            return tl.inline_asm_elementwise(CHAIN_8, "=&f,f,f,f,f", [p[0], p[1], p[2], p[3]], tl.float32, False, 1)
    rows: tl.constexpr = p[0].shape[0]
    total = tl.zeros([rows, H_PAD], tl.float32)
    nth = tl.arange(0, 32 // H_PAD)[None, :, None]
    for i in tl.static_range(RUN):
        x = bits(tl.reshape(p[i // (32 // H_PAD)], [rows, 32 // H_PAD, H_PAD]))
        total = total + from_bits(tl.sum(tl.where(nth == i % (32 // H_PAD), x, 0), axis=1))
    return tl.reshape(tl.broadcast_to(total[:, None, :], [rows, 32 // H_PAD, H_PAD]), [rows, 32])


@triton.jit
def pick(p, column: tl.constexpr, SHUFFLE: tl.constexpr):
    """[R, 32]: one column of p everywhere."""
    if SHUFFLE:
        at = tl.full(p.shape, column, tl.int32)
        return tl.inline_asm_elementwise(PICK, "=f,f,r", [p, at], tl.float32, False, 1)
    lane = tl.arange(0, 32)[None, :]
    found = tl.sum(tl.where(lane == column, bits(p), 0), axis=1)
    return tl.broadcast_to(from_bits(found)[:, None], p.shape)


@triton.jit
def columns_apart(x, PER: tl.constexpr):
    """[R, C * PER] to PER tensors [R, C], neighbouring columns apart; `columns_together` undoes it."""
    parts = (x,)
    for level in tl.static_range(3):
        if PER >> level > 1:
            finer = ()
            for i in tl.static_range(2**level):
                even, odd = tl.split(tl.reshape(parts[i], [x.shape[0], x.shape[1] >> (level + 1), 2]))
                finer += (even, odd)
            parts = finer
    return parts


@triton.jit
def columns_together(parts, PER: tl.constexpr):
    for level in tl.static_range(3):
        if PER >> level > 1:
            wider = ()
            for i in tl.static_range(PER >> (level + 1)):
                pair = tl.join(parts[2 * i], parts[2 * i + 1])
                wider += (tl.reshape(pair, [pair.shape[0], pair.shape[1] * 2]),)
            parts = wider
    return parts[0]


@triton.jit
def largest_of(
    max_ptr, sinks_ptr, part, first, stop,
    SINKS: tl.constexpr, HEADS: tl.constexpr, H_PAD: tl.constexpr, LOADS: tl.constexpr,
):  # fmt: skip
    """[1, 32]: the maximum of a part over stretches first .. stop - 1, and the sink; of head c % H_PAD in column c.

    LOADS * 32 stretches at a time, which every warp loads for itself. Made of scalars: a vector would bring its layout.
    """
    column = tl.arange(0, 32)[None, :]
    largest = tl.full([1, 32], NEG_INF, tl.float32)
    while first < stop:
        for g in tl.static_range(HEADS):
            m = tl.full([32], NEG_INF, tl.float32)
            for i in tl.static_range(LOADS):
                nth = first + i * 32 + tl.arange(0, 32)
                m = tl.maximum(m, tl.load(max_ptr + nth * HEADS + g, mask=nth < stop, other=NEG_INF))
            largest = tl.where(column % H_PAD == g, tl.maximum(largest, tl.max(m, axis=0)), largest)
        first += LOADS * 32
    if SINKS:
        for g in tl.static_range(HEADS):
            sink = tl.load(sinks_ptr + part * HEADS + g)
            largest = tl.where(column % H_PAD == g, tl.maximum(largest, sink), largest)
    return largest


@triton.jit
def zeros_each(ROWS: tl.constexpr, COLUMNS: tl.constexpr, COUNT: tl.constexpr):
    """COUNT accumulators."""
    each = ()
    for _ in tl.static_range(COUNT):
        each += (tl.zeros([ROWS, COLUMNS], tl.float32),)
    return each


@triton.jit
def load_values(
    v_ptr, indices_ptr, entry, run, low, length, v_page, num_pages, fault_ptr,
    page_size: tl.constexpr, TABLE: tl.constexpr, WINDOW: tl.constexpr,
    V_SLOT: tl.constexpr, V_DIM: tl.constexpr, V_PAD: tl.constexpr,
):  # fmt: skip
    """16 times [R, V_PAD]: the values at positions run .. run + 15 of runs [R]; zeros where not kept."""
    column = tl.arange(0, V_PAD)[None, :]
    some = (run < length) & (run + RUN > low)
    page, slot, exists = page_of(indices_ptr, entry, run, some, page_size, num_pages, fault_ptr, TABLE)
    at = v_ptr + (page * v_page + slot * V_SLOT)[:, None] + column
    stop = tl.where(exists, length - run, 0)[:, None]
    values = ()
    for i in tl.static_range(RUN):
        kept = i < stop
        if WINDOW:
            kept &= i >= (low - run)[:, None]
        values += (tl.load(at + i * V_SLOT, mask=kept & (column < V_DIM), other=0.0),)
    return values


@triton.jit
def load_scores(s_ptr, run, low, length, HEADS: tl.constexpr, H_PAD: tl.constexpr):
    """Of runs [R], s [16, H_PAD] as it lies, 32 numbers at a time: H_PAD / 2 times [R, 32]."""
    lane = tl.arange(0, 32)[None, :]
    scores = ()
    for n in tl.static_range(H_PAD // 2):
        position = run[:, None] + n * (32 // H_PAD) + lane // H_PAD
        kept = (position >= low) & (position < length) & (lane % H_PAD < HEADS)
        scores += (tl.load(s_ptr + run[:, None] * H_PAD + n * 32 + lane, mask=kept, other=NEG_INF),)
    return scores


@triton.jit
def sums_of_runs(values, weights, HEADS: tl.constexpr, H_PAD: tl.constexpr, PER: tl.constexpr, SHUFFLE: tl.constexpr):
    """HEADS times [R, C]: the chain over 16 positions of P * v, for values 16 * [R, C] and P as scores lie."""
    rows: tl.constexpr = values[0].shape[0]
    sums = zeros_each(rows, 32, HEADS * PER)
    for i in tl.static_range(RUN):
        v = columns_apart(values[i].to(tl.float32), PER)
        added = ()
        for g in tl.static_range(HEADS):
            p = pick(weights[i * H_PAD // 32], (i * H_PAD + g) % 32, SHUFFLE)
            for c in tl.static_range(PER):
                added += (tl.fma(p, v[c], sums[g * PER + c]),)
        sums = added
    together = ()
    for g in tl.static_range(HEADS):
        mine = ()
        for c in tl.static_range(PER):
            mine += (sums[g * PER + c],)
        together += (columns_together(mine, PER),)
    return together


@triton.jit
def weights_of(scores, largest, total, FORMAT: tl.constexpr, H_PAD: tl.constexpr, SHUFFLE: tl.constexpr):
    """P of a run, and total [R, 32] with its sum of p added."""
    shift = tl.where(largest == NEG_INF, 0.0, largest)
    p = ()
    weights = ()
    for n in tl.static_range(H_PAD // 2):
        p += (exp(scores[n] - shift),)
        weights += (as_operand(p[n], FORMAT),)
    return weights, total + chain_of_run(p, H_PAD, SHUFFLE)


@triton.jit
def add_runs(
    x_ptr, runs, total, o_ptr, l_ptr,
    HEADS: tl.constexpr, H_PAD: tl.constexpr, V_DIM: tl.constexpr, V_PAD: tl.constexpr,
):  # fmt: skip
    """A cut's 16 runs [16, V_PAD] of every head, and their sums of p, added in order, through a program's scratch x.

    Triton hands rows from warp to warp only in many small exchanges; memory does it in one.
    """
    nth = tl.arange(0, RUN)[:, None]
    column = tl.arange(0, V_PAD)[None, :]
    lane = tl.arange(0, 32)[None, :]
    tl.debug_barrier()  # the last cut's have been read
    for g in tl.static_range(HEADS):
        tl.store(x_ptr + (nth * HEADS + g) * V_PAD + column, runs[g])
    tl.store(x_ptr + (RUN * V_PAD + nth) * HEADS + lane, total, mask=lane < HEADS)
    tl.debug_barrier()
    at = tl.arange(0, H_PAD * V_PAD)
    head = tl.arange(0, H_PAD)
    x = ()
    t = ()
    for i in tl.static_range(RUN):
        x += (tl.load(x_ptr + i * HEADS * V_PAD + at, mask=at < HEADS * V_PAD, other=0.0),)
        t += (tl.load(x_ptr + (RUN * V_PAD + i) * HEADS + head, mask=head < HEADS, other=0.0),)
    out = tl.zeros([H_PAD * V_PAD], tl.float32)
    total = tl.zeros([H_PAD], tl.float32)
    for i in tl.static_range(RUN):
        out = out + x[i]
        total = total + t[i]
    inside = (at < HEADS * V_PAD) & (at % V_PAD < V_DIM)
    tl.store(o_ptr + at // V_PAD * V_DIM + at % V_PAD, out, mask=inside)
    tl.store(l_ptr + head, total, mask=head < HEADS)


@triton.jit
def walk_cut(
    values, scores, largest, v_ptr, s_ptr, o_ptr, l_ptr, indices_ptr, fault_ptr,
    entry, run, low, stop, v_page, num_pages,
    page_size: tl.constexpr, TABLE: tl.constexpr, WINDOW: tl.constexpr, FORMAT: tl.constexpr,
    HEADS: tl.constexpr, H_PAD: tl.constexpr, V_SLOT: tl.constexpr, V_DIM: tl.constexpr, V_PAD: tl.constexpr,
    SHUFFLE: tl.constexpr,
):  # fmt: skip
    """o [HEADS, V_DIM] and l [HEADS] of a cut up to position stop - 1, run after run; the first run [1] is loaded."""
    column = tl.arange(0, V_PAD)[None, :]
    lane = tl.arange(0, 32)[None, :]
    sums = zeros_each(1, V_PAD, HEADS)
    total = tl.zeros([1, 32], tl.float32)
    position = (stop - 1) // CUT * CUT
    while position < stop:
        # The next run is on its way while this one is used.
        position += RUN
        run += RUN
        next_values = load_values(
            v_ptr, indices_ptr, entry, run, low, stop, v_page, num_pages, fault_ptr,
            page_size, TABLE, WINDOW, V_SLOT, V_DIM, V_PAD,
        )  # fmt: skip
        next_scores = load_scores(s_ptr, run, low, stop, HEADS, H_PAD)
        weights, total = weights_of(scores, largest, total, FORMAT, H_PAD, SHUFFLE)
        runs = sums_of_runs(values, weights, HEADS, H_PAD, V_PAD // 32, SHUFFLE)
        added = ()
        for g in tl.static_range(HEADS):
            added += (sums[g] + runs[g],)
        sums = added
        values = next_values
        scores = next_scores
    for g in tl.static_range(HEADS):
        tl.store(o_ptr + g * V_DIM + column, sums[g], mask=column < V_DIM)
    tl.store(l_ptr + lane, total, mask=lane < HEADS)


@triton.jit(
    do_not_specialize=[
        "num_tokens", "num_seqs", "num_entries", "num_pages", "num_tiles", "num_slots", "k_programs", "window"
    ]
)  # fmt: skip
def decode_values(
    v_ptr, s_ptr, max_ptr, x_ptr, o_ptr, l_ptr, qo_ptr, last_ptr, indptr_ptr, indices_ptr, sinks_ptr, fault_ptr,
    num_tokens, num_seqs, num_entries, num_pages, num_tiles, num_slots, k_programs, v_page, v_head, window,
    page_size: tl.constexpr, TABLE: tl.constexpr, WINDOW: tl.constexpr, SINKS: tl.constexpr,
    FORMAT: tl.constexpr, GROUP: tl.constexpr, HEADS: tl.constexpr, H_PAD: tl.constexpr, NUM_PARTS: tl.constexpr,
    V_SLOT: tl.constexpr, V_DIM: tl.constexpr, V_PAD: tl.constexpr, RUNS: tl.constexpr, SEQ_BLOCK: tl.constexpr,
    SHUFFLE: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    """o [part, cut slot, HEADS, V_DIM] and l [part, cut slot, 2, HEADS], the sum of p and the maximum.

    An item is a cut. One warp walks through its runs (RUNS is 1), or 16 warps take one each (16).
    """
    lane = tl.arange(0, 32)[None, :]
    at, stop, seq, base, tiles_before, all_tiles = decode_share(
        qo_ptr, last_ptr, indptr_ptr, num_seqs, num_entries, num_tokens, page_size, window, fault_ptr,
        NUM_PARTS, True, TABLE, WINDOW, SEQ_BLOCK,
    )  # fmt: skip
    k_share = tl.cdiv(all_tiles * NUM_PARTS, k_programs)
    while at < stop:
        _, rows, entry, length = sequences(
            seq, True, qo_ptr, last_ptr, indptr_ptr, num_entries, num_tokens, page_size, fault_ptr, TABLE
        )
        first, tiles = decode_tiles(rows, length, window, WINDOW)
        cuts = decode_cuts(first, tiles)
        if at - base >= cuts * NUM_PARTS:
            base += cuts * NUM_PARTS
            tiles_before += tiles
            seq += 1
        else:
            part = (at - base) // cuts
            cut = first // (CUT // RUN) + (at - base) % cuts
            low = 0
            if WINDOW:
                low = length - 1 - window
            stop_cut = tl.minimum((cut + 1) * CUT, length)
            run = cut * CUT + tl.arange(0, RUNS) * RUN
            v_base = v_ptr + (part * HEADS // GROUP).to(tl.int64) * v_head
            values = load_values(
                v_base, indices_ptr, entry, run, low, stop_cut, v_page, num_pages, fault_ptr,
                page_size, TABLE, WINDOW, V_SLOT, V_DIM, V_PAD,
            )  # fmt: skip
            wait_for_previous(CHAINED)
            first_tile = part.to(tl.int64) * num_tiles + entry.to(tl.int64) * page_size // RUN + seq
            s_base = s_ptr + first_tile * (RUN * H_PAD)
            scores = load_scores(s_base, run, low, stop_cut, HEADS, H_PAD)
            numbered = seq * NUM_PARTS + part
            first_stretch = (tiles_before * NUM_PARTS + part * tiles) // k_share + numbered
            stop_stretch = (tiles_before * NUM_PARTS + part * tiles + tiles - 1) // k_share + numbered + 1
            largest = largest_of(
                max_ptr, sinks_ptr, part, first_stretch, stop_stretch, SINKS, HEADS, H_PAD, 1 if RUNS == 1 else 4
            )
            slot = part.to(tl.int64) * num_slots + entry.to(tl.int64) * page_size // CUT + seq + cut
            o_slot, l_slot = o_ptr + slot * HEADS * V_DIM, l_ptr + slot * 2 * HEADS
            if RUNS == 1:
                walk_cut(
                    values, scores, largest, v_base, s_base, o_slot, l_slot, indices_ptr, fault_ptr,
                    entry, run, low, stop_cut, v_page, num_pages,
                    page_size, TABLE, WINDOW, FORMAT, HEADS, H_PAD, V_SLOT, V_DIM, V_PAD, SHUFFLE,
                )  # fmt: skip
            else:
                total = tl.zeros([RUNS, 32], tl.float32)
                weights, total = weights_of(scores, largest, total, FORMAT, H_PAD, SHUFFLE)
                runs = sums_of_runs(values, weights, HEADS, H_PAD, V_PAD // 32, SHUFFLE)
                mine = x_ptr + tl.program_id(0).to(tl.int64) * (RUN * HEADS * (V_PAD + 1))
                add_runs(mine, runs, total, o_slot, l_slot, HEADS, H_PAD, V_DIM, V_PAD)
            tl.store(l_slot + HEADS + lane, largest, mask=lane < HEADS)
            at += 1
    if tl.program_id(0) == 0:  # so the grid ends after the one before it, also where nothing was to do
        wait_for_previous(CHAINED)
