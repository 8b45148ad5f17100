"""Paged decode attention: what the orders of the Q.K and P.V sums cost on one H200."""

import sys
from types import SimpleNamespace

import attention_cuda as cuda
import attention_k
import attention_v
import numpy as np
import torch
import triton
from common import DEVICE, INTERPRET, best_of, chain, median_us, num_sets, require_same_bits, rotated, table, tree

G, D, PAGE, CUT = 4, 128, 16, 256
HKV = 1 if INTERPRET else 8  # the interpreter is slow
SCALE = float(np.float32(D**-0.5))
SHAPES = [(64, 4096), (16, 512), (1, 4096)]

BY_TOKEN = [dict(T=t, warps=w) for t, w in ((64, 2), (128, 4), (256, 4), (128, 2), (256, 8))]
BY_ROW = [dict(T=t, warps=w) for t, w in ((32, 4), (64, 4), (64, 8))]
BY_LANE = [
    dict(T=t, STEP=s, warps=w)
    for t, s, w in ((256, 32, 4), (256, 64, 4), (256, 32, 2), (128, 32, 4), (64, 32, 2), (64, 64, 4))
]
BY_SLOT = [dict(warps=w, stages=s) for w in (4, 8) for s in (1, 3, 5)]
K_VARIANTS = {  # name: (kernel, order, launch configurations)
    "QA token": (attention_k.scores_by_token, "QA", BY_TOKEN),
    "QA row": (attention_k.scores_by_row, "QA", BY_ROW),
    "QB token": (attention_k.scores_by_token, "QB", BY_TOKEN),
    "QC token": (attention_k.scores_by_token, "QC", BY_TOKEN),
    "QC row": (attention_k.scores_by_row, "QC", BY_ROW),
    "QCt token": (attention_k.scores_by_token, "QCt", BY_TOKEN),
    "QCt row": (attention_k.scores_by_row, "QCt", BY_ROW),
    "QA lane": (attention_k.scores_by_lane, "QA", BY_LANE),
    "QCt lane": (attention_k.scores_by_lane, "QCt", BY_LANE),
    "QD slot": (attention_k.scores_by_slot, "QD", [dict(T=t, warps=w) for t, w in ((64, 4), (128, 4), (64, 2))]),
}
V_VARIANTS = {
    "PA row": (attention_v.values_by_row, "PA", [dict(warps=w, stages=1) for w in (1, 2)]),
    "PB row": (attention_v.values_by_row, "PB", [dict(warps=w, stages=1) for w in (1, 2)]),
    "PC slot": (attention_v.values_by_slot, "PC", BY_SLOT),
    "PD row": (attention_v.values_by_row, "PD", [dict(warps=w, stages=1) for w in (1, 2)]),
    "PD slot": (attention_v.values_by_slot, "PD", BY_SLOT),
}
PAIRS = [
    ("QCt lane", "PB row"),
    ("QCt lane", "PC slot"),
    ("QCt lane", "PD row"),
    ("QCt lane", "PD cuda"),
    ("QA cuda", "PA cuda"),
    ("QB cuda", "PB row"),
    ("QB cuda", "PC cuda"),
    ("QC cuda", "PD cuda"),
    ("QCt cuda", "PC cuda"),
    ("QCt cuda", "PD cuda"),
    ("QD cuda", "PC cuda"),
]
if not INTERPRET:
    K_VARIANTS |= {f"{order} cuda": (cuda, order, [dict(T=cuda.TILE)]) for order in cuda.Q_ORDERS}
    V_VARIANTS |= {f"{order} cuda": (cuda, order, [dict(words=2), dict(words=4)]) for order in cuda.P_ORDERS}


def make_inputs(batch, ctx, seed):
    gen = torch.Generator(device=DEVICE).manual_seed(seed)
    pages = batch * ctx // PAGE

    def randn(*shape):
        return torch.randn(shape, device=DEVICE, generator=gen)

    q = randn(batch, HKV, G, D).bfloat16()
    return SimpleNamespace(
        batch=batch,
        ctx=ctx,
        q=q,
        q_by_d=q.float().transpose(2, 3).contiguous(),
        k=randn(pages, PAGE, HKV, D).bfloat16(),
        v=randn(pages, PAGE, HKV, D).bfloat16(),
        pages=torch.randperm(pages, device=DEVICE, generator=gen).int().view(batch, -1),
        s=torch.empty(batch, HKV, ctx, G, device=DEVICE),
        maxima=torch.empty(batch * HKV * G * ctx // 32, device=DEVICE),
        p=torch.empty(batch * HKV * ctx * G, device=DEVICE),
        o=torch.empty(batch, HKV, ctx // CUT, G, D, device=DEVICE),
        l=torch.empty(batch, HKV, ctx // CUT, G, device=DEVICE),
        out=torch.empty(batch, HKV, G, D, device=DEVICE),
    )


def k_pass(x, variant, config):
    kernel, order, _ = K_VARIANTS[variant]
    if kernel is cuda:
        cuda.k_pass(x, order, SCALE, HKV)
        return
    kernel[(x.ctx // config["T"], HKV, x.batch)](
        x.q if "STEP" in config else x.q_by_d,
        x.k,
        x.pages,
        x.s,
        x.maxima,
        SCALE,
        x.ctx,
        HKV,
        ORDER=order,
        G=G,
        D=D,
        **{k: v for k, v in config.items() if k != "warps"},
        EMULATE=INTERPRET,
        num_warps=config["warps"],
        enable_fp_fusion=False,
    )


def v_pass(x, variant, tile, config):
    kernel, order, _ = V_VARIANTS[variant]
    tiles = x.ctx // tile
    if kernel is cuda:
        cuda.v_pass(x, order, config["words"], tiles, HKV)
        return
    kernel[(x.ctx // CUT, HKV, x.batch)](
        x.s,
        x.maxima,
        x.v,
        x.pages,
        x.p,
        x.o,
        x.l,
        x.ctx,
        tiles,
        HKV,
        order,
        config["stages"],
        triton.next_power_of_2(tiles),
        G,
        D,
        num_warps=config["warps"],
        enable_fp_fusion=False,
    )


def combine(x):
    grid = (x.batch * HKV, G)
    attention_v.combine_cuts[grid](x.o, x.l, x.out, x.ctx // CUT, G, D, num_warps=1, enable_fp_fusion=False)


def reference_exp(x):
    f = np.float32
    shifted = x * f(1.4426950216293335) + f(12582912.0)
    n = shifted - f(12582912.0)
    r = (x - n * f(0.693145751953125)) - n * f(1.428606765330187e-06)
    y = r * f(0.0013888889225199819) + f(0.008333333767950535)
    for c in (0.0416666679084301, 0.1666666716337204, 0.5, 1.0, 1.0):
        y = y * r + f(c)
    exponent = shifted.view(np.int32) - np.int32(0x4B400000) + np.int32(127)
    with np.errstate(over="ignore"):
        return np.where(x < f(-87), f(0), y * (exponent << 23).view(np.float32))


def over_d(terms, order):
    """Sum over axis 0 (D) in one of the candidate orders."""
    if order == "QA":
        return tree(terms)
    if order == "QB":
        return chain(terms)
    if order == "QD":
        return chain(chain(terms.reshape(D // 16, 16, *terms.shape[1:])))
    blocks = chain(terms.reshape(D // 8, 8, *terms.shape[1:]).swapaxes(0, 1))
    return chain(blocks) if order == "QC" else tree(blocks)


def over_cut(terms, order):
    """Sum over axis 0 (256 positions) in one of the candidate orders."""
    pages = terms.reshape(16, 16, *terms.shape[1:])
    if order in ("PC", "PD"):
        return chain(chain(pages if order == "PC" else pages.swapaxes(0, 1)))
    return tree(terms) if order == "PA" else chain(terms)


def gather(cache, pages):
    """[Hkv, ctx, D] of one sequence as f32."""
    return cache[pages.long()].reshape(-1, HKV, D).transpose(0, 1).float().cpu().numpy()


def reference_scores(x, seq, order):
    k, q = gather(x.k, x.pages[seq]), x.q[seq].float().cpu().numpy()
    terms = np.moveaxis(q[:, :, None, :] * k[:, None, :, :], 3, 0)
    return np.ascontiguousarray((over_d(terms, order) * np.float32(SCALE)).swapaxes(1, 2))


def reference_output(x, seq, scores, order):
    v = gather(x.v, x.pages[seq])
    p = reference_exp(scores - scores.max(axis=1, keepdims=True))
    p = torch.from_numpy(p).bfloat16().float().numpy()
    out = np.empty((HKV, G, D), np.float32)
    for h in range(HKV):
        ph = p[h].reshape(-1, CUT, G).swapaxes(0, 1)
        vh = v[h].reshape(-1, CUT, D).swapaxes(0, 1)
        num = chain(over_cut(ph[..., None] * vh[:, :, None, :], order))
        out[h] = num / chain(over_cut(ph, order))[:, None]
    return out


def check(batch, ctx, k_names=K_VARIANTS, v_names=V_VARIANTS, limit=None):
    x = make_inputs(batch, ctx, 7)
    for name in k_names:
        for config in K_VARIANTS[name][2][:limit]:
            x.s.fill_(float("nan"))
            k_pass(x, name, config)
            for seq in {0, batch - 1}:
                require_same_bits(f"{name} {config}", x.s[seq], reference_scores(x, seq, K_VARIANTS[name][1]))
    k_pass(x, "QB token", BY_TOKEN[1])
    want = {}
    for name in v_names:
        order = V_VARIANTS[name][1]
        for config in V_VARIANTS[name][2][:limit]:
            x.out.fill_(float("nan"))
            v_pass(x, name, BY_TOKEN[1]["T"], config)
            combine(x)
            for seq in {0, batch - 1}:
                if (order, seq) not in want:
                    want[order, seq] = reference_output(x, seq, x.s[seq].cpu().numpy(), order)
                require_same_bits(f"{name} {config}", x.out[seq], want[order, seq])
    print(f"attention {', '.join([*k_names, *v_names])}: bits equal the reference", flush=True)


def whole(x, k_name, k_config, v_name, v_config):
    k_pass(x, k_name, k_config)
    v_pass(x, v_name, k_config["T"], v_config)
    combine(x)


def measure(batch, ctx):
    one_cache = batch * ctx * HKV * D * 2
    sets = [make_inputs(batch, ctx, i) for i in range(num_sets(one_cache))]
    best = {name: best_of(configs, k_pass, sets, name) for name, (_, _, configs) in K_VARIANTS.items()}
    for x in sets:
        k_pass(x, "QB token", BY_TOKEN[1])
    best |= {name: best_of(configs, v_pass, sets, name, 128) for name, (_, _, configs) in V_VARIANTS.items()}
    rows = [[name, f"{time:.1f}", f"{one_cache / time / 1e6:.2f}", config] for name, (time, config) in best.items()]
    print(f"\nB {batch} ctx {ctx}, each pass\n\n" + table(["order", "µs", "TB/s", "configuration"], rows), flush=True)

    rows = []
    last = batch - 1
    for k_name, v_name in PAIRS:
        args = (k_name, best[k_name][1], v_name, best[v_name][1])
        whole(sets[0], *args)
        scores = reference_scores(sets[0], last, K_VARIANTS[k_name][1])
        want = reference_output(sets[0], last, scores, V_VARIANTS[v_name][1])
        require_same_bits(f"{k_name} + {v_name}", sets[0].out[last], want)
        time = median_us(rotated(whole, sets, *args))
        rows.append([f"{k_name} + {v_name}", f"{time:.1f}", f"{2 * one_cache / time / 1e6:.2f}"])
    print(f"\nB {batch} ctx {ctx}, K pass + V pass + combine\n\n" + table(["orders", "µs", "TB/s"], rows), flush=True)


def main():
    if INTERPRET:
        check(1, 256, limit=1)
    elif "--check" in sys.argv:
        wanted = tuple(sys.argv[sys.argv.index("--check") + 1 :]) or ("Q", "P")
        check(3, 1024, *([n for n in names if n.startswith(wanted)] for names in (K_VARIANTS, V_VARIANTS)))
    else:
        for batch, ctx in SHAPES:
            measure(batch, ctx)


if __name__ == "__main__":
    main()
