"""Attention of the tier invariant: a query has one result, alone, in a prompt, in a chunk of it, in a batch."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
import torch
import triton.language as tl

from samebits.kernels.triton.attention.invariant import op as invariant
from samebits.kernels.triton.attention.invariant.op import paged_attention_invariant

LENGTH, PAGE, HEADS, HEAD = 560, 16, 2, 16  # more than a split, and no multiple of a block
POSITIONS = (0, 15, 63, 64, 511, 512, 559)
KINDS: dict[str, tuple[torch.dtype, dict[str, Any]]] = {
    "plain": (torch.bfloat16, {}),
    "window": (torch.float16, {"window_left": 70}),
    "cap and sinks": (torch.bfloat16, {"logits_soft_cap": 20.0, "sinks": torch.tensor([0.5, -1.0])}),
}


class Sequence:
    """Random queries, keys and values; `hashes` computes some of its queries in one call."""

    def __init__(self, dtype: torch.dtype) -> None:
        generator = torch.Generator().manual_seed(7)
        num_pages = LENGTH // PAGE
        self.q = torch.randn(LENGTH, HEADS, HEAD, generator=generator).to(dtype)
        self.k = torch.randn(num_pages, PAGE, 1, HEAD, generator=generator).to(dtype)
        self.v = torch.randn(num_pages, PAGE, 1, HEAD, generator=generator).to(dtype)
        self.pages = torch.randperm(num_pages, generator=generator).to(torch.int32)

    def hashes(self, *spans: tuple[int, int], **kind: Any) -> list[str]:
        """Of the queries start .. stop - 1 of every span, each a sequence of the batch with `stop` tokens."""
        counts = [-(-stop // PAGE) for _, stop in spans]
        out = paged_attention_invariant(
            torch.cat([self.q[start:stop] for start, stop in spans]),
            self.k,
            _ends([stop - start for start, stop in spans]),
            torch.tensor([stop - (n - 1) * PAGE for (_, stop), n in zip(spans, counts, strict=True)]).int(),
            self.v,
            _ends(counts),
            torch.cat([self.pages[:n] for n in counts]),
            **kind,
        )
        assert isinstance(out, torch.Tensor)
        return [hashlib.sha256(row.contiguous().view(torch.int16).numpy().tobytes()).hexdigest() for row in out]


def _ends(counts: list[int]) -> torch.Tensor:
    return torch.cat([torch.zeros(1), torch.tensor(counts).cumsum(0)]).int()


@pytest.mark.parametrize("kind", KINDS)
def test_a_query_has_one_result(kind: str) -> None:
    dtype, attrs = KINDS[kind]
    sequence = Sequence(dtype)
    prompt = sequence.hashes((0, LENGTH), **attrs)
    assert len(set(prompt)) == LENGTH, "queries that are alike would hide what is mixed up"
    for cut in (97, 513):
        chunks = [*sequence.hashes((0, cut), **attrs), *sequence.hashes((cut, LENGTH), **attrs)]
        assert chunks == prompt, f"the prompt in two chunks, {cut} tokens first"
    steps = [(at, at + 1) for at in POSITIONS]
    wanted = [prompt[at] for at in POSITIONS]
    assert [sequence.hashes(step, **attrs)[0] for step in steps] == wanted, "steps of one token, alone"
    assert sequence.hashes(*steps, **attrs) == wanted, "steps of one token, in a batch"
    mixed = sequence.hashes((540, 548), (0, 300), *steps, **attrs)
    assert mixed == [*prompt[540:548], *prompt[:300], *wanted], "a few tokens, a prompt and steps in a batch"


def test_scratch_without_room_for_all_splits_changes_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    sequence, last = Sequence(torch.bfloat16), (LENGTH - 1, LENGTH)
    cut = sequence.hashes(last)
    monkeypatch.setattr(invariant, "SPLIT", tl.constexpr(1 << 30))  # room for one split
    assert sequence.hashes(last) == cut
