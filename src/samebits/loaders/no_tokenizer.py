"""What stands for a tokenizer where a model comes without one: prompts are token ids, and answers are too."""

from __future__ import annotations

from array import array

from samebits.core.errors import BadInput
from samebits.loaders.tokenizer import SpecialTokens, Tokenizer


class NoTokenizer(Tokenizer):
    """Every id stands for no text; BadInput for a text."""

    kind = "none"

    def __init__(self, where: str, special: SpecialTokens) -> None:
        super().__init__(where, (), frozenset(), special, max_token_bytes=1)

    def max_bytes(self, max_tokens: int | None) -> tuple[int, str]:
        return self.max_text_bytes, ""

    def _encode(self, text: str, add_special: bool, parse_special: bool) -> array[int]:
        raise BadInput("encode", "text", "a text", f"token ids: {self.where} has no tokenizer")


def special_of(end_ids: list[int]) -> SpecialTokens:
    """Return the special tokens of a model without a tokenizer: `end_ids`, the first of which is its eos."""
    return SpecialTokens(eos=end_ids[0] if end_ids else None, end_ids=frozenset(end_ids))
