"""Salts that were made to continue another conversation, as could be done when salts and pages were hashed alike."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import numpy as np
import pytest
from scenes import Lab

from samebits.engine.request_options import RequestOptions
from samebits.engine.sampling import SamplingParams

# The old name of a page with these tokens starts with "n1/": tests/cache/test_prefix_names.py says how they were found.
FIRST = [*range(3, 15), 4, 40, 105, 179]
SECOND, THIRD = list(range(100, 116)), list(range(40, 56))
VICTIM, ATTACK = [*FIRST, *SECOND, *THIRD, 7], [*THIRD, 7]
PARAMS = SamplingParams(max_tokens=8, temperature=0, seed=1, hash_logits=True, ignore_eos=True)


def salt() -> bytes:
    """A salt whose old first name was the old name of the victim's first two pages."""
    name = blake2b(b"n1/", digest_size=16).digest()
    name = blake2b(name + np.array(FIRST, np.int32).tobytes(), digest_size=16).digest()
    return name.removeprefix(b"n1/") + np.array(SECOND, np.int32).tobytes()


def answers(lab: Lab, *requests: tuple[list[int], bytes]) -> list[tuple[Any, int]]:
    """What requests give one after another on one engine, and how many tokens of their prompts were cached."""
    engine, found = lab.engine(), []
    for prompt, salt in requests:
        job = engine.generate(prompt, PARAMS, RequestOptions(salt=salt))
        engine.complete(job)
        found.append((job.completions(), job.num_cached_tokens))
    return found


@pytest.mark.parametrize("order", ["the victim first", "the attacker first"])
def test_a_forged_salt_reads_and_poisons_nothing(lab: Lab, order: str) -> None:
    attack, victim, common = (ATTACK, salt()), (VICTIM, b""), ([*FIRST, *SECOND, 9], b"")
    (alone_attack,), (alone_victim,) = answers(lab, attack), answers(lab, victim)
    if order == "the victim first":
        assert answers(lab, victim, attack) == [alone_victim, alone_attack]
    else:
        assert answers(lab, common, attack, victim)[1:] == [alone_attack, (alone_victim[0], 32)]
