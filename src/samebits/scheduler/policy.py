"""How many prompt tokens a step may take beside its decodes, and how many guessed ones."""

from __future__ import annotations

from dataclasses import dataclass

from samebits.core.errors import BadInput, as_given

OFF_TOKENS = 2048  # prompt tokens a step may take when decodes are not protected
CHUNKS_OF_CONTEXT = 25  # a prompt as long as the context goes in at most about so many chunks


@dataclass(frozen=True)
class Policy:
    """The budget of a step. Decodes are never capped; prompts share what is left, in order of arrival.

    Guessed tokens are taken along where no prompt waits and decodes are few: there a step costs little more with them.

    prefill_budget     "dynamic": what the step's decodes leave of max_batch_tokens; a number: that many, always;
                       "off": 2048 beside any number of decodes
    max_batch_tokens   tokens a step aims at
    min_prefill_tokens what prompts get in any step, however many decodes there are
    max_prefill_chunk  tokens of one prompt in a step; absent: a share of the context, so that several prompts advance
    priority_steps     steps a request of one priority level lower waits longer: it is served in the end
    draft_batch_tokens decodes and guessed tokens of a step together, where there are guessed ones
    """

    prefill_budget: int | str = "dynamic"
    max_batch_tokens: int = 512
    min_prefill_tokens: int = 128
    max_prefill_chunk: int | None = None
    priority_steps: int = 1000
    draft_batch_tokens: int = 32

    def __post_init__(self) -> None:
        if self.prefill_budget not in ("dynamic", "off") and type(self.prefill_budget) is not int:
            given = as_given(str(self.prefill_budget))
            raise BadInput("scheduler", "prefill_budget", given, "'dynamic', 'off' or a number of tokens")
        sizes = {
            "prefill_budget": 1 if isinstance(self.prefill_budget, str) else self.prefill_budget,
            "max_batch_tokens": self.max_batch_tokens,
            "min_prefill_tokens": self.min_prefill_tokens,
            "max_prefill_chunk": 1 if self.max_prefill_chunk is None else self.max_prefill_chunk,
            "priority_steps": self.priority_steps,
            "draft_batch_tokens": self.draft_batch_tokens,
        }
        for name, value in sizes.items():
            if value < 1:
                raise BadInput("scheduler", name, value, "1 or more")

    @property
    def target_tokens(self) -> int:
        return max(self.max_batch_tokens, self.min_prefill_tokens)

    def budget(self, num_decodes: int) -> int:
        """Prompt tokens of a step with so many decodes."""
        if self.prefill_budget == "off":
            return OFF_TOKENS
        if isinstance(self.prefill_budget, int):
            return self.prefill_budget
        return max(self.min_prefill_tokens, self.target_tokens - num_decodes)

    def draft_room(self, num_decodes: int, num_prefill_tokens: int, max_sequences: int) -> int:
        """Guessed tokens of a step with so many decodes and prompt tokens, in an engine of so many sequences."""
        if num_prefill_tokens:
            return 0
        return max(0, min(self.draft_batch_tokens, self.max_step_tokens(max_sequences)) - num_decodes)

    def chunk_cap(self, max_len: int) -> int:
        """Tokens that one prompt may take of a step, in an engine whose sequences have at most max_len tokens."""
        if self.prefill_budget == "off":
            return OFF_TOKENS
        if isinstance(self.prefill_budget, int):
            return min(self.prefill_budget, self.max_prefill_chunk or self.prefill_budget)
        share = max(self.min_prefill_tokens, -(-max_len // CHUNKS_OF_CONTEXT))
        cap = self.max_prefill_chunk or min(self.target_tokens, share)
        return min(max(cap, self.min_prefill_tokens), self.target_tokens)

    def max_step_tokens(self, max_sequences: int) -> int:
        """No step has more tokens: what buffers are sized for. One sequence at least is the prompt's."""
        if self.prefill_budget == "dynamic":
            return max(self.target_tokens, max_sequences - 1 + self.min_prefill_tokens)
        return max_sequences - 1 + self.budget(0)
