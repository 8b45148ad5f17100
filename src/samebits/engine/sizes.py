"""How large a step and its memory are where a caller states little."""

from __future__ import annotations

from samebits.engine.drafts.pace import pace_of
from samebits.models.parts import Limits
from samebits.scheduler import Policy

LEAST_PREFILL = 128  # prompt tokens that a step takes beside any number of decodes
CONTEXTS, ENOUGH_TOKENS = 4, 32768  # KV memory where none is stated


def policy_for(backend: str, prefill_budget: int | str, max_batch_tokens: int) -> Policy:
    """The budgets of steps on a backend; BadInput where they are none."""
    least = min(LEAST_PREFILL, max_batch_tokens)
    return Policy(prefill_budget, max_batch_tokens, least, draft_batch_tokens=pace_of(backend).batch_tokens)


def limits_for(
    longest: int,
    policy: Policy,
    *,
    context_len: int | None,
    max_sequences: int,
    num_pages: int | None,
    page_size: int,
    k_format: str,
    v_format: str,
) -> Limits:
    """The sizes that a model's step is built for; longest: tokens that the model itself allows."""
    length = min(longest if context_len is None else context_len, longest)
    enough = max(length, min(min(max_sequences, CONTEXTS) * length, ENOUGH_TOKENS))
    return Limits(
        max_tokens=policy.max_step_tokens(max_sequences),
        max_sequences=max_sequences,
        num_pages=num_pages or -(-enough // page_size) + 1,
        page_size=page_size,
        max_positions=length,
        k_format=k_format,
        v_format=v_format,
    )
