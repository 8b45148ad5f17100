"""Layers in a window have pages of their own: fewer of them, and not another bit, whatever else runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from samebits import LLM, SamplingParams
from samebits.backends.discovery import default_name

MODELS = Path(__file__).parents[1] / "models" / "data"
STEM = [int(i * i + 3) % 96 for i in range(40)]
PROMPTS = [STEM + [i, 2 * i + 1, 5] * (1 + i % 3) for i in range(9)] + [STEM[:7], STEM[: 4 * 6], [1]]
PARAMS = SamplingParams(max_tokens=20, temperature=0.9, seed=11, n=3, ignore_eos=True, hash_logits=True)
FEWER = replace(PARAMS, max_tokens=12, n=2)  # the reference is slow
WINDOW, PAGE_SIZE = 9, 4


@pytest.mark.parametrize(
    ("name", "backend", "prompts", "params", "context_len"),
    [("gemma3", default_name(), PROMPTS, PARAMS, 128), ("gemma2", "reference", PROMPTS[:2], FEWER, 72)],
    ids=["gemma3", "gemma2 on the reference"],
)
def test_the_same_bits_in_fewer_pages(
    name: str, backend: str, prompts: list[list[int]], params: SamplingParams, context_len: int
) -> None:
    def open_llm(**options: Any) -> LLM:
        return LLM(MODELS / name, backend=backend, page_size=PAGE_SIZE, context_len=context_len, **options)

    alone = open_llm(max_sequences=params.n, share_prefixes=False)
    expected = [answer for prompt in prompts for answer in alone.generate([prompt], params)]
    together = open_llm(max_sequences=16, max_batch_tokens=24)
    pages = together.engine.scheduler.pages
    (narrow,) = pages.windows
    for _ in range(2):  # the second time, prefixes are known
        jobs = [together.engine.generate(prompt, params) for prompt in prompts]
        most = [0, 0]
        while not all(job.is_done for job in jobs):
            together.engine.step()
            most = [max(most[0], pages.num_used), max(most[1], narrow.num_used)]
        assert [answer for job in jobs for answer in job.completions()] == expected
        pages.check_integrity()
    assert (pages.num_used, narrow.num_used) == (0, 0)
    assert together.engine.scheduler.num_cached_tokens > 0
    assert most[1] < 0.7 * most[0]
    one_and_a_little = context_len // PAGE_SIZE * 5 // 4
    tight = open_llm(max_sequences=16, max_batch_tokens=24, num_pages=one_and_a_little)
    assert tight.generate(prompts, params) == expected
    assert tight.engine.scheduler.num_preemptions > 0
    assert narrow.pool.num_pages <= 1 + 16 * (-(-WINDOW // PAGE_SIZE) + 4) + -(-(24 + 16) // PAGE_SIZE)
