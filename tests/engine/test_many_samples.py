"""More samples than a step can draw: they take turns, every one gets its bits, and no other request notices."""

from __future__ import annotations

from pathlib import Path

import pytest
from scenes import Lab, outcome, start

from samebits import SamplingParams
from samebits.backends.discovery import default_name, get
from samebits.engine.engine import Engine
from samebits.engine.runner import Runner
from samebits.models.checkpoint import open_checkpoint
from samebits.models.parts import Limits
from samebits.scheduler import Policy

SAMPLES = {  # more than the small engine runs at once
    n: SamplingParams(max_tokens=2, n=n, seed=n, logit_bias={5: 1.0} if n == 17 else {}, ignore_eos=True)
    for n in (17, 128)
}


@pytest.fixture(scope="module")
def small(random_tiny: Path) -> Runner:
    limits = Limits(max_tokens=47, max_sequences=16, num_pages=200, max_positions=400)
    return Runner(open_checkpoint(random_tiny), get(default_name()), limits)


@pytest.mark.parametrize(("num_prompts", "n"), [(32, 17), (5, 128), (60, 17)])
def test_samples_beyond_a_steps_bound_fail_nobody(small: Runner, lab: Lab, num_prompts: int, n: int) -> None:
    engine = Engine(small, lab.tokenizer, Policy(32))
    prompts = [[7 + i % 3, 9, i % 3] for i in range(num_prompts)]
    jobs = [engine.generate(prompt, SAMPLES[n]) for prompt in prompts]
    others = {name: start(engine, name) for name in ("greedy", "seven samples", "mean")}
    engine.complete(*jobs, *others.values())
    for name, job in others.items():
        assert outcome(job) == lab.alone[name]
    roomy = lab.engine()
    alone = [roomy.generate(prompt, SAMPLES[n]) for prompt in prompts[:3]]
    for job in alone:
        roomy.complete(job)
    for i, job in enumerate(jobs):
        assert outcome(job) == outcome(alone[i % 3])
    engine.scheduler.check_integrity()
    assert engine.scheduler.pages.num_used == 0
