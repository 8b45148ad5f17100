"""Sum of squares per row, float32, unfused: what the order costs on one H200."""

import sys

import torch
import triton
import triton.language as tl
from common import DEVICE, INTERPRET, best_of, chain, num_sets, require_same_bits, table, tree
from orders import sum16_in_order, tree_of_last

WIDTH = 4096
HEIGHT = 4 if INTERPRET else 8192


@triton.jit
def row_tree(x_ptr, y_ptr, WIDTH: tl.constexpr, R: tl.constexpr):
    tl.static_assert(WIDTH == 4096)
    row = tl.program_id(0) * R + tl.arange(0, R)
    x = tl.load(x_ptr + row[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :])
    tl.store(y_ptr + row, tree_of_last(x * x, 12))


@triton.jit
def row_cuts(x_ptr, y_ptr, WIDTH: tl.constexpr, R: tl.constexpr):
    """RC: [16 cuts, 16 slots] of a row at a time, the chain inside a cut is elementwise."""
    tl.static_assert(WIDTH == 4096 and R == 1)
    row = tl.program_id(0)
    x = x_ptr + row * WIDTH + tl.arange(0, 16)[:, None] * 256 + tl.arange(0, 16)[None, :]
    acc = tl.zeros([16, 16], tl.float32)
    for i in tl.static_range(16):
        v = tl.load(x + i * 16)
        acc = acc + v * v
    cuts = sum16_in_order(acc)
    tl.store(y_ptr + row + tl.arange(0, 1), sum16_in_order(tl.reshape(cuts, [1, 16])))


@triton.jit
def row_lanes(x_ptr, y_ptr, WIDTH: tl.constexpr, R: tl.constexpr):
    """RL: lane j chains x[256 c + j]; the 256 lane sums are then one cut of 16 x 16."""
    tl.static_assert(R == 1)
    row = tl.program_id(0)
    x = x_ptr + row * WIDTH + tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :]
    acc = tl.zeros([16, 16], tl.float32)
    for c in tl.static_range(WIDTH // 256):
        v = tl.load(x + c * 256)
        acc = acc + v * v
    slots = sum16_in_order(tl.trans(acc))
    tl.store(y_ptr + row + tl.arange(0, 1), sum16_in_order(tl.reshape(slots, [1, 16])))


VARIANTS = {
    "RA": (row_tree, [dict(R=r, warps=w) for r, w in ((1, 1), (1, 2), (1, 4), (4, 8))]),
    "RC": (row_cuts, [dict(R=1, warps=w) for w in (1, 2, 4)]),
    "RL": (row_lanes, [dict(R=1, warps=w) for w in (1, 2, 4)]),
}


def run(xy, name, config):
    kernel, rows = VARIANTS[name][0], config["R"]
    kernel[(HEIGHT // rows,)](*xy, WIDTH, rows, num_warps=config["warps"], enable_fp_fusion=False)


def reference(x, name):
    terms = (x * x).cpu().numpy().T
    if name == "RA":
        return tree(terms)
    if name == "RC":
        cuts = terms.reshape(WIDTH // 256, 16, 16, -1)
        return chain(chain(chain(cuts.swapaxes(0, 1)).swapaxes(0, 1)))
    lanes = chain(terms.reshape(WIDTH // 256, 256, -1))
    return chain(chain(lanes.reshape(16, 16, -1)))


def check():
    x = torch.randn(HEIGHT, WIDTH, device=DEVICE)
    for name, (_, configs) in VARIANTS.items():
        want = reference(x, name)
        for config in configs[: 1 if INTERPRET else None]:
            y = torch.full((HEIGHT,), float("nan"), device=DEVICE)
            run((x, y), name, config)
            require_same_bits(f"rowsum {name} {config}", y, want)
    print("rowsum: bits of every order and configuration equal the reference", flush=True)


def measure():
    size = HEIGHT * WIDTH * 4
    y = torch.empty(HEIGHT, device=DEVICE)
    sets = [(torch.randn(HEIGHT, WIDTH, device=DEVICE), y) for _ in range(num_sets(size))]
    rows = []
    for name, (_, configs) in VARIANTS.items():
        time, config = best_of(configs, run, sets, name)
        rows.append([name, f"{time:.1f}", f"{size / time / 1e6:.2f}", config])
    print("\nsum of squares, 8192 rows of 4096\n\n" + table(["order", "µs", "TB/s", "configuration"], rows), flush=True)


if __name__ == "__main__":
    if INTERPRET or "--check" in sys.argv:
        check()
    else:
        measure()
