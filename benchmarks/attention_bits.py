"""Whether a query has one result on a GPU, in the tier invariant: `python benchmarks/attention_bits.py`.

One random sequence's queries are computed as a prompt, in chunks, as steps of one token alone and in a batch, and
beside other prompts. A line for each head size, format and option says how many rows differed from the prompt's.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import torch

from samebits.kernels.triton.attention.invariant.op import paged_attention_invariant

PAGE, CHUNK, STRIDE = 16, 97, 29
Span = tuple[int, int]  # queries start .. stop - 1, of a sequence with `stop` tokens


class Sequence:
    """Random queries, keys and values of one sequence, its pages in any order."""

    def __init__(self, length: int, heads: tuple[int, int], head: int, dtype: torch.dtype) -> None:
        generator = torch.Generator(device="cuda").manual_seed(1)
        num_pages = -(-length // PAGE)

        def random(*shape: int) -> torch.Tensor:
            return torch.randn(*shape, device="cuda", generator=generator).to(dtype)

        self.q = 2 * random(length, heads[0], head)
        self.k, self.v = (random(num_pages, PAGE, heads[1], head) for _ in range(2))
        self.pages = torch.randperm(num_pages, device="cuda", generator=generator).to(torch.int32)

    def attend(self, spans: list[Span], **attrs: Any) -> torch.Tensor:
        """The results of every span's queries, in one call with a sequence for each span."""
        counts = [-(-stop // PAGE) for _, stop in spans]
        out = paged_attention_invariant(
            torch.cat([self.q[start:stop] for start, stop in spans]),
            self.k,
            _ends([stop - start for start, stop in spans]),
            _indices([stop - (n - 1) * PAGE for (_, stop), n in zip(spans, counts, strict=True)]),
            self.v,
            _ends(counts),
            torch.cat([self.pages[:n] for n in counts]),
            **attrs,
        )
        return out if isinstance(out, torch.Tensor) else out[0]


def _indices(numbers: list[int]) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.int32, device="cuda")


def _ends(counts: list[int]) -> torch.Tensor:
    return torch.cat([_indices([0]), _indices(counts).cumsum(0).int()])


def batches(length: int) -> Iterator[list[list[Span]]]:
    """Ways to compute some queries: calls, each of some spans."""
    for cut in (1, 16, 17, 100, length - 1):
        yield [[(0, cut)], [(cut, length)]]
    yield [[(start, min(start + CHUNK, length))] for start in range(0, length, CHUNK)]
    steps = [(at, at + 1) for at in range(0, length, STRIDE)]
    yield [steps]
    yield [[step] for step in steps[::7]]
    yield [[*((at, at + 8) for at, _ in steps if at + 8 <= length), (0, length)]]


def num_different(length: int, heads: tuple[int, int], head: int, dtype: torch.dtype, **attrs: Any) -> int:
    """Rows with other bits than the prompt's, over all batches."""
    sequence = Sequence(length, heads, head, dtype)
    prompt = sequence.attend([(0, length)], **attrs)
    different = 0
    for calls in batches(length):
        for spans in calls:
            wanted = torch.cat([prompt[start:stop] for start, stop in spans])
            different += int((sequence.attend(spans, **attrs) != wanted).flatten(1).any(1).sum())
    return different


def main() -> int:
    cases: list[tuple[int, tuple[int, int], int, torch.dtype, dict[str, Any]]] = [
        (1337, (32, 8), 128, torch.bfloat16, {}),
        (5000, (32, 8), 128, torch.bfloat16, {}),
        (1337, (32, 8), 128, torch.float16, {}),
        (1337, (8, 8), 64, torch.bfloat16, {}),
        (1337, (8, 2), 256, torch.bfloat16, {}),
        (1337, (32, 8), 128, torch.bfloat16, {"window_left": 300}),
        (1337, (32, 8), 128, torch.bfloat16, {"logits_soft_cap": 30.0}),
    ]
    failed = 0
    for length, heads, head, dtype, attrs in cases:
        different = num_different(length, heads, head, dtype, **attrs)
        print(f"{length} tokens, heads {heads} of {head}, {dtype}, {attrs}: {different} rows differ")
        failed += different > 0
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
