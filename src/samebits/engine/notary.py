"""Receipts of an engine's answers: what all of them share, and what each request adds."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from samebits import NUMERICS_VERSION, __version__
from samebits.core.grammar_library import grammar_library
from samebits.core.tiers import Tier
from samebits.engine.runner import Runner
from samebits.engine.sampling import SamplingParams
from samebits.receipts.record import Grammar, Model, Numerics, Place, Receipt, Said, Sampling

NOT_STATED = ("logprobs", "prompt_logprobs", "hash_logits", "receipt")  # wishes that change no answer


def numerics_of(runner: Runner) -> Numerics:
    """The arithmetic of a model as it runs."""
    limits = runner.limits
    max_positions = limits.max_positions if runner.switch_lens else None
    return Numerics(NUMERICS_VERSION, runner.tier.label, limits.k_format, limits.v_format, max_positions)


def place_of(runner: Runner) -> Place | None:
    """Where bits are promised to be the same; None where they are everywhere."""
    if runner.tier >= Tier.PORTABLE:
        return None
    caps = runner.found.caps
    device, features = (caps.device, caps.features) if caps else ("", ())
    return Place(runner.backend.name, device, " ".join((__version__, *features)))


def sampling_of(params: SamplingParams) -> Sampling:
    """What a receipt says of a request; its seed is known by now."""
    said: dict[str, Any] = {f.name: getattr(params, f.name) for f in fields(Sampling)}
    said |= {"logit_bias": tuple(sorted(params.logit_bias.items())), "shown_ids": tuple(sorted(params.shown_ids))}
    return Sampling(**{**said, "stop": params.stops})


def params_of(sampling: Sampling) -> SamplingParams:
    """The request again; BadInput for what no request can ask for."""
    said: dict[str, Any] = {f.name: getattr(sampling, f.name) for f in fields(Sampling)}
    return SamplingParams(
        **said | {"logit_bias": dict(sampling.logit_bias), "shown_ids": frozenset(sampling.shown_ids)}
    )


@dataclass(frozen=True)
class Notary:
    """What every receipt of a model on an engine says alike."""

    model: Model
    numerics: Numerics
    place: Place | None
    context_len: int

    def receipt(
        self, prompt: np.ndarray, params: SamplingParams, grammar: Grammar | None, sample_index: int, said: Said
    ) -> Receipt:
        """Return the receipt of an answer that has ended. A grammar is stated with this process's grammar library."""
        if grammar is not None:
            grammar = replace(grammar, library=grammar_library())
        return Receipt(
            model=self.model,
            numerics=self.numerics,
            place=self.place,
            context_len=self.context_len,
            prompt_ids=tuple(prompt.tolist()),
            sampling=sampling_of(params),
            sample_index=sample_index,
            grammar=grammar,
            answer=said,
        )
