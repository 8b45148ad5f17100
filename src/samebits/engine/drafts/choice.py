"""Drafters by name: "ngram", or "draft:MODEL"."""

from __future__ import annotations

from samebits.core.errors import BadInput
from samebits.engine.drafts.drafter import Drafter
from samebits.engine.drafts.ngram import NgramDrafter
from samebits.engine.drafts.smaller_model import PAGE_SIZE, ModelDrafter, check_vocabulary
from samebits.engine.runner import Runner
from samebits.loaders import Tokenizer
from samebits.loaders.obtain import obtain
from samebits.models.checkpoint import FileCheckpoint, open_checkpoint
from samebits.models.parts import Limits
from samebits.scheduler import Policy

NGRAM, DRAFT = "ngram", "draft:"


def check_choice(speculate: str) -> None:
    """BadInput unless it names a drafter."""
    is_model = isinstance(speculate, str) and speculate.startswith(DRAFT) and len(speculate) > len(DRAFT)
    if speculate != NGRAM and not is_model:
        raise BadInput(
            "speculate", "drafter", repr(speculate), f"{NGRAM!r}, or {DRAFT + 'MODEL'!r} with a model's name"
        )


def draft_checkpoint(speculate: str) -> FileCheckpoint | None:
    """Return the smaller model that a drafter needs, fetched if it must be; None if it needs none."""
    check_choice(speculate)
    return None if speculate == NGRAM else open_checkpoint(obtain(speculate.removeprefix(DRAFT)))


def make_drafter(
    speculate: str, runner: Runner, tokenizer: Tokenizer, checkpoint: FileCheckpoint | None = None
) -> Drafter:
    """Return the drafter of that name for a model, whose runner and tokenizer these are.

    checkpoint  what `draft_checkpoint` gave, if it was asked for before
    """
    from samebits.engine.engine import Engine  # which imports this room

    check_choice(speculate)
    if speculate == NGRAM:
        return NgramDrafter()
    model = speculate.removeprefix(DRAFT)
    checkpoint = checkpoint or open_checkpoint(obtain(model))
    drafts = checkpoint.tokenizer()
    check_vocabulary(tokenizer, drafts, model)
    ours = runner.limits
    policy = Policy()
    limits = Limits(
        max_tokens=policy.max_step_tokens(ours.max_sequences),
        max_sequences=ours.max_sequences,
        num_pages=-(-ours.num_pages * ours.page_size // PAGE_SIZE),
        page_size=PAGE_SIZE,
        max_positions=min(ours.max_positions, checkpoint.config.context_len),
        k_format=ours.k_format,
        v_format=ours.v_format,
    )
    smaller = Runner(checkpoint, runner.found, limits, runner.tier.label)
    if smaller.has_slots:
        needed = "one that keeps all in pages: states in slots are found again at the ends of long pages only"
        raise BadInput("speculate", model, "a model with recurrent layers", needed)
    return ModelDrafter(Engine(smaller, drafts, policy))
