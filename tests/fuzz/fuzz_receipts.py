"""Receipts from anyone: other values anywhere in them, damaged text; what is read is written again as it was."""

from __future__ import annotations

import json
import sys
from functools import cache
from pathlib import Path

from fuzz_driver import Target, main, only_own_errors
from fuzz_tokenizer_json import ANYTHING, replaced
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[1] / "loaders"))

from test_loader_fuzz import EDITS, edited

from samebits.engine.notary import params_of, sampling_of
from samebits.engine.sampling import SamplingParams
from samebits.receipts.record import Grammar, Model, Numerics, Place, Receipt, Said, from_json

HASH = "0123456789abcdef" * 4


def run(data: bytes) -> None:
    """Reads as `samebits replay` does; ArithmeticError where a receipt does not come back as it was."""
    with only_own_errors():
        receipt = from_json(data)
        if from_json(receipt.to_json()).to_json() != receipt.to_json():
            raise ArithmeticError("a receipt that is written differs from the one that was read")
        receipt.computed_sha256()
        params_of(receipt.sampling)


@cache
def seeds() -> list[bytes]:
    wish = SamplingParams(seed=1, stop=("a", "é"), logit_bias={3: -1.5}, allowed_token_ids=(1, 2), n=2)
    portable = Receipt(
        model=Model("m", HASH, HASH, None),
        numerics=Numerics(1, "portable", "f16", "f16"),
        place=None,
        context_len=64,
        prompt_ids=(1, 2, 3),
        sampling=sampling_of(wish),
        sample_index=1,
        grammar=Grammar("regex", "a+"),
        answer=Said((4, 5), (HASH, HASH), "length", HASH),
    )
    made = json.loads(portable.to_json())
    fast = {**made, "numerics": {**made["numerics"], "tier": "fast"}, "place": vars(Place("cpu", "d", "b"))}
    return [portable.to_json(), json.dumps(fast).encode(), json.dumps({**made, "signature": 2 * HASH}).encode()]


CHANGED = st.builds(
    lambda number, path, value: json.dumps(replaced(json.loads(seeds()[number]), path, value)).encode(),
    st.integers(0, 2),
    st.lists(st.integers(0, 300), min_size=1, max_size=3),
    ANYTHING,
)
DAMAGED = st.builds(
    lambda number, edits: edited(seeds()[number], len(seeds()[number]), edits),
    st.integers(0, 2),
    st.lists(EDITS, min_size=1, max_size=4),
)

if __name__ == "__main__":
    main(Target("fuzz_receipts", run, st.one_of(CHANGED, DAMAGED), seeds))
