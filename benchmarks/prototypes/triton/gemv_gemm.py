"""Block-quantized matmul (Q8_0, Q4_0): what the order of the sum over blocks of K costs on one H200."""

import sys
from types import SimpleNamespace

import numpy as np
import torch
import triton
import triton.language as tl
from common import DEVICE, INTERPRET, best_of, chain, num_sets, require_same_bits, table, tree

BLOCK, CHUNK = 32, 8
GEMV_SHAPES = [(4096, 4096), (14336, 4096), (4096, 14336)]
ORDERS = ["flat", "chunk8", "tree8"]


@triton.jit
def dp4a(a, b, c, EMULATE: tl.constexpr):
    if EMULATE:
        for i in tl.static_range(4):
            c += ((a << (24 - 8 * i)) >> 24) * ((b << (24 - 8 * i)) >> 24)
        return c
    return tl.inline_asm_elementwise("dp4a.s32.s32 $0, $1, $2, $3;", "=r,r,r,r", [a, b, c], tl.int32, True, 1)


@triton.jit
def dot16(w_ptr, a_ptr, acc, NIBBLE: tl.constexpr, EMULATE: tl.constexpr):
    """acc [rows] + 16 products; w_ptr points at the 16 bytes of each row."""
    w = tl.load(w_ptr[:, None] + tl.arange(0, 4)[None, :])
    if NIBBLE:
        low, high = w & 0x0F0F0F0F, (w >> 4) & 0x0F0F0F0F
        acc = dot16_words(low, a_ptr, acc, EMULATE)
        return dot16_words(high, a_ptr + 4, acc, EMULATE)
    return dot16_words(w, a_ptr, acc, EMULATE)


@triton.jit
def dot16_words(w, a_ptr, acc, EMULATE: tl.constexpr):
    rows: tl.constexpr = w.shape[0]
    even, odd = tl.split(tl.reshape(w, [rows, 2, 2]))
    w0, w2 = tl.split(even)
    w1, w3 = tl.split(odd)
    acc = dp4a(w0, tl.load(a_ptr), acc, EMULATE)
    acc = dp4a(w1, tl.load(a_ptr + 1), acc, EMULATE)
    acc = dp4a(w2, tl.load(a_ptr + 2), acc, EMULATE)
    return dp4a(w3, tl.load(a_ptr + 3), acc, EMULATE)


@triton.jit
def block_term(x, N, row, b, Q4: tl.constexpr, EMULATE: tl.constexpr):
    w_ptr, d_ptr, a_ptr, sa_ptr, asum_ptr = x
    isum = tl.zeros([row.shape[0]], tl.int32)
    if Q4:
        isum -= 8 * tl.load(asum_ptr + b)
        isum = dot16(w_ptr + (b * N + row) * 4, a_ptr + b * 8, isum, True, EMULATE)
    else:
        isum = dot16(w_ptr + (2 * b * N + row) * 4, a_ptr + b * 8, isum, False, EMULATE)
        isum = dot16(w_ptr + ((2 * b + 1) * N + row) * 4, a_ptr + b * 8 + 4, isum, False, EMULATE)
    d = tl.load(d_ptr + b * N + row).to(tl.float32)
    return isum.to(tl.float32) * (d * tl.load(sa_ptr + b))


@triton.jit
def chunk_sum(x, N, row, b, TREE: tl.constexpr, Q4: tl.constexpr, EMULATE: tl.constexpr):
    if TREE:
        t01 = block_term(x, N, row, b, Q4, EMULATE) + block_term(x, N, row, b + 1, Q4, EMULATE)
        t23 = block_term(x, N, row, b + 2, Q4, EMULATE) + block_term(x, N, row, b + 3, Q4, EMULATE)
        t45 = block_term(x, N, row, b + 4, Q4, EMULATE) + block_term(x, N, row, b + 5, Q4, EMULATE)
        t67 = block_term(x, N, row, b + 6, Q4, EMULATE) + block_term(x, N, row, b + 7, Q4, EMULATE)
        return (t01 + t23) + (t45 + t67)
    acc = tl.zeros([row.shape[0]], tl.float32)
    for i in tl.static_range(8):
        acc = acc + block_term(x, N, row, b + i, Q4, EMULATE)
    return acc


@triton.jit
def gemv(
    w_ptr,
    d_ptr,
    a_ptr,
    sa_ptr,
    asum_ptr,
    part_ptr,
    count_ptr,
    y_ptr,
    N,
    num_chunks,
    per_program,
    ORDER: tl.constexpr,
    Q4: tl.constexpr,
    ROWS: tl.constexpr,
    EMULATE: tl.constexpr,
):
    """A thread owns a row and some chunks; the last program of a row tile adds the parts in order."""
    tile, split = tl.program_id(0), tl.program_id(1)
    x = (w_ptr, d_ptr, a_ptr, sa_ptr, asum_ptr)
    row = tile * ROWS + tl.arange(0, ROWS)
    for c in tl.range(split * per_program, tl.minimum((split + 1) * per_program, num_chunks)):
        if ORDER == "flat":
            # Terms cannot be joined before all earlier ones are, so every one of them is a part.
            for i in tl.static_range(8):
                tl.store(part_ptr + (c * 8 + i) * N + row, block_term(x, N, row, c * 8 + i, Q4, EMULATE))
        else:
            tl.store(part_ptr + c * N + row, chunk_sum(x, N, row, c * 8, ORDER == "tree8", Q4, EMULATE))
    tl.debug_barrier()
    if tl.atomic_add(count_ptr + tile, 1, sem="acq_rel") == tl.num_programs(1) - 1:
        num_parts = num_chunks
        if ORDER == "flat":
            num_parts = num_chunks * 8
        acc = tl.zeros([ROWS], tl.float32)
        for c in tl.range(0, num_parts, loop_unroll_factor=8):
            acc = acc + tl.load(part_ptr + c * N + row, cache_modifier=".cg")
        tl.store(y_ptr + row, acc)
        tl.store(count_ptr + tile, 0)


@triton.jit
def gemv_serial(
    w_ptr,
    d_ptr,
    a_ptr,
    sa_ptr,
    asum_ptr,
    y_ptr,
    N,
    num_chunks,
    Q4: tl.constexpr,
    ROWS: tl.constexpr,
    EMULATE: tl.constexpr,
):
    """flat without scratch: one thread walks the whole row."""
    x = (w_ptr, d_ptr, a_ptr, sa_ptr, asum_ptr)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    acc = tl.zeros([ROWS], tl.float32)
    for c in tl.range(num_chunks):
        for i in tl.static_range(8):
            acc = acc + block_term(x, N, row, c * 8 + i, Q4, EMULATE)
    tl.store(y_ptr + row, acc)


@triton.jit
def gemm_term(a_ptr, sa_ptr, w_ptr, d_ptr, m, n, b, K, M, N):
    k = b * 32 + tl.arange(0, 32)
    a = tl.load(a_ptr + m[:, None] * K + k[None, :])
    w = tl.load(w_ptr + n[None, :] * K + k[:, None])
    scale = tl.load(sa_ptr + b * M + m)[:, None] * tl.load(d_ptr + b * N + n).to(tl.float32)[None, :]
    return tl.dot(a, w, out_dtype=tl.int32).to(tl.float32) * scale


@triton.jit
def gemm_pair(a_ptr, sa_ptr, w_ptr, d_ptr, m, n, b, K, M, N):
    return gemm_term(a_ptr, sa_ptr, w_ptr, d_ptr, m, n, b, K, M, N) + gemm_term(
        a_ptr, sa_ptr, w_ptr, d_ptr, m, n, b + 1, K, M, N
    )


@triton.jit
def gemm(
    a_ptr,
    sa_ptr,
    w_ptr,
    d_ptr,
    y_ptr,
    M,
    N,
    K,
    ORDER: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    STAGES: tl.constexpr,
):
    """int8 tensor-core dot per block of 32, then the float stage."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros([BM, BN], tl.float32)
    if ORDER == "flat":
        for b in tl.range(0, K // 32, num_stages=STAGES):
            total = total + gemm_term(a_ptr, sa_ptr, w_ptr, d_ptr, m, n, b, K, M, N)
    else:
        # Chunks outside, blocks unrolled inside: a test for the chunk's end in one flat loop costs a fifth.
        for c in tl.range(0, K // 256, num_stages=STAGES):
            if ORDER == "chunk8":
                part = tl.zeros([BM, BN], tl.float32)
                for i in tl.static_range(8):
                    part = part + gemm_term(a_ptr, sa_ptr, w_ptr, d_ptr, m, n, c * 8 + i, K, M, N)
            else:
                part = gemm_pair(a_ptr, sa_ptr, w_ptr, d_ptr, m, n, c * 8, K, M, N) + gemm_pair(
                    a_ptr, sa_ptr, w_ptr, d_ptr, m, n, c * 8 + 2, K, M, N
                )
                part = part + (
                    gemm_pair(a_ptr, sa_ptr, w_ptr, d_ptr, m, n, c * 8 + 4, K, M, N)
                    + gemm_pair(a_ptr, sa_ptr, w_ptr, d_ptr, m, n, c * 8 + 6, K, M, N)
                )
            total = total + part
    tl.store(y_ptr + m[:, None] * N + n[None, :], total)


def make_inputs(N, K, quant, tokens, seed):
    gen = torch.Generator(device=DEVICE).manual_seed(seed)
    limit = 8 if quant == "Q4_0" else 128
    w = torch.randint(-limit, limit, (N, K), device=DEVICE, generator=gen, dtype=torch.int32)
    d = (torch.rand(K // BLOCK, N, device=DEVICE, generator=gen) * 0.01 + 0.001).half()
    a = torch.randint(-127, 128, (tokens, K), device=DEVICE, generator=gen, dtype=torch.int32)
    sa = torch.rand(K // BLOCK, tokens, device=DEVICE, generator=gen) + 0.1
    x = SimpleNamespace(N=N, K=K, M=tokens, quant=quant, d=d, sa=sa, a=a.to(torch.int8), w=w.to(torch.int8))
    if tokens == 1:
        x.packed = pack(w, quant)
        x.asum = a.view(-1, BLOCK).sum(1, dtype=torch.int32)
        x.parts = torch.empty(K // BLOCK * N, device=DEVICE)
        x.counts = torch.zeros(N, dtype=torch.int32, device=DEVICE)
    x.y = torch.empty(tokens, N, device=DEVICE)
    return x


def pack(w, quant):
    """int32 [blocks][16-byte half][N][4 words] for Q8_0; [blocks][N][4] for Q4_0, k 0-15 in the low nibbles."""
    N, K = w.shape
    halves = w.view(N, K // BLOCK, 2, 16).permute(1, 2, 0, 3)
    if quant == "Q4_0":
        halves = (halves[:, 0] + 8) | ((halves[:, 1] + 8) << 4)
    return halves.to(torch.uint8).contiguous().view(torch.int32)


def run_gemv(x, order, config):
    args = (x.packed, x.d, x.a.view(torch.int32), x.sa, x.asum)
    options = dict(
        Q4=x.quant == "Q4_0", ROWS=config["rows"], EMULATE=INTERPRET, num_warps=config["warps"], enable_fp_fusion=False
    )
    chunks = x.K // BLOCK // CHUNK
    tiles = x.N // config["rows"]
    if config["per_program"] == 0:
        gemv_serial[(tiles,)](*args, x.y, x.N, chunks, **options)
    else:
        splits = triton.cdiv(chunks, config["per_program"])
        gemv[(tiles, splits)](*args, x.parts, x.counts, x.y, x.N, chunks, config["per_program"], ORDER=order, **options)


def run_gemm(x, order, config):
    gemm[(x.M // config["BM"], x.N // config["BN"])](
        x.a,
        x.sa,
        x.w,
        x.d,
        x.y,
        x.M,
        x.N,
        x.K,
        order,
        config["BM"],
        config["BN"],
        config["stages"],
        num_warps=config["warps"],
        enable_fp_fusion=False,
    )


def reference(x, order, columns):
    blocks = x.K // BLOCK
    a = x.a.cpu().numpy().astype(np.float32).reshape(x.M, blocks, BLOCK).swapaxes(0, 1)
    w = x.w[columns].cpu().numpy().astype(np.float32).reshape(-1, blocks, BLOCK).transpose(1, 2, 0)
    d = x.d[:, columns].float().cpu().numpy()
    # Block sums are integers below 2^24, so a float32 matmul gives them exactly.
    terms = (a @ w) * (x.sa.cpu().numpy()[:, :, None] * d[:, None, :])
    if order == "flat":
        return chain(terms)
    chunks = terms.reshape(blocks // CHUNK, CHUNK, *terms.shape[1:]).swapaxes(0, 1)
    return chain(chain(chunks) if order == "chunk8" else tree(chunks))


def gemv_configs(order):
    serial = [dict(rows=32, warps=1, per_program=0)] if order == "flat" else []
    return serial + [dict(rows=r, warps=r // 32, per_program=p) for r in (64, 128) for p in (1, 2, 4)]


def gemm_configs(order):
    stages = (3, 4) if order == "flat" else (1, 2)
    tiles = ((128, 128, 8), (64, 128, 4), (64, 128, 8), (64, 64, 4))
    return [dict(BM=m, BN=n, warps=w, stages=s) for m, n, w in tiles for s in stages]


def check():
    columns = torch.arange(0, 64)
    for quant in ("Q8_0", "Q4_0"):
        x = make_inputs(128, 1280, quant, 1, 3) if INTERPRET else make_inputs(4096, 4096, quant, 1, 3)
        cols = torch.arange(x.N)
        for order in ORDERS:
            want = reference(x, order, cols)
            for config in gemv_configs(order)[: 2 if INTERPRET else None]:
                x.y.fill_(float("nan"))
                run_gemv(x, order, config)
                require_same_bits(f"gemv {quant} {order} {config}", x.y, want)
    x = make_inputs(128, 512, "Q8_0", 128, 3) if INTERPRET else make_inputs(1024, 4096, "Q8_0", 256, 3)
    for order in ORDERS:
        want = reference(x, order, columns)
        for config in gemm_configs(order)[: 1 if INTERPRET else None]:
            x.y.fill_(float("nan"))
            run_gemm(x, order, config)
            require_same_bits(f"gemm {order} {config}", x.y[:, columns].contiguous(), want)
    print("gemv and gemm: bits of every order and configuration equal the reference", flush=True)


def measure():
    rows = []
    for quant, bytes_per_block in (("Q8_0", 34), ("Q4_0", 18)):
        for N, K in GEMV_SHAPES:
            size = N * K // BLOCK * bytes_per_block
            sets = [make_inputs(N, K, quant, 1, i) for i in range(num_sets(size))]
            for order in ORDERS:
                time, config = best_of(gemv_configs(order), run_gemv, sets, order)
                rows.append([f"{quant} {N}x{K}", order, f"{time:.1f}", f"{size / time / 1e6:.2f}", config])
            del sets
    print("\ngemv, 1 token\n\n" + table(["matrix", "order", "µs", "TB/s", "configuration"], rows), flush=True)
    rows = []
    sets = [make_inputs(14336, 4096, "Q8_0", 4096, i) for i in range(2)]
    for order in ORDERS:
        time, config = best_of(gemm_configs(order), run_gemm, sets, order)
        rows.append([order, f"{time:.0f}", f"{2 * 4096 * 14336 * 4096 / time / 1e6:.0f}", config])
    title = "\ngemm Q8_0, 4096 tokens, 14336x4096\n\n"
    print(title + table(["order", "µs", "TFLOP/s", "configuration"], rows), flush=True)


if __name__ == "__main__":
    if INTERPRET or "--check" in sys.argv:
        check()
    else:
        measure()
