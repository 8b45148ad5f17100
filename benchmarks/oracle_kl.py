"""SmolLM2's logits against an independent float32 oracle: `python benchmarks/oracle_kl.py [--backend B]`.

Prints KL divergence and top-1 agreement by prompt and pooled over all positions. The project's bars: pooled KL at most
0.0042, agreement at least 94 % (llama.cpp's own figures: 0.0040 and 95.6 % on the longest prompt).
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

DATA = Path(__file__).parents[1] / "tests" / "engine" / "data"


def kl_and_agreement(logits: np.ndarray, oracle: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """KL over the 128 likeliest tokens plus the rest as one bucket, and whether the likeliest agree, per position."""
    x = logits.astype(np.float64)
    log_q = x - x.max(axis=1, keepdims=True)
    log_q -= np.log(np.exp(log_q).sum(axis=1, keepdims=True))
    count = len(x)
    ids, log_p = oracle["top_ids"][:count], oracle["top_logprobs"][:count].astype(np.float64)
    log_q_top = np.take_along_axis(log_q, ids, axis=1)
    rest_p, rest_q = (np.maximum(1 - np.exp(v).sum(axis=1), 1e-12) for v in (log_p, log_q_top))
    kl = (np.exp(log_p) * (log_p - log_q_top)).sum(axis=1) + rest_p * np.log(rest_p / rest_q)
    return kl, x.argmax(axis=1) == ids[:, 0]


def main() -> None:
    from samebits import LLM

    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", default="reference")
    parser.add_argument("--model", default="smollm2")
    asked = parser.parse_args()
    llm = LLM(asked.model, backend=asked.backend, context_len=512)
    print(f"{llm.numerics} on {asked.backend}\n| prompt | positions | KL | top-1 |\n|---|---|---|---|")
    pooled = []
    for name in ("capital", "sky", "apache"):
        oracle = dict(np.load(DATA / f"{name}.npz"))
        kl, agree = kl_and_agreement(llm.score(oracle["token_ids"].tolist(), logits=True).logits, oracle)
        pooled.append((kl, agree))
        print(f"| {name} | {len(kl)} | {kl.mean():.4f} | {agree.mean():.1%} |")
    kl, agree = (np.concatenate(part) for part in zip(*pooled, strict=True))
    print(f"| pooled | {len(kl)} | {kl.mean():.4f} | {agree.mean():.1%} |")


if __name__ == "__main__":
    main()
