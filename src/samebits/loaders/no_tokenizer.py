"""What stands for a tokenizer where a model comes without one: prompts are token ids, and answers are too."""

from __future__ import annotations

from array import array

from samebits.core.errors import BadInput
from samebits.loaders.fields import Fields
from samebits.loaders.limits import MAX_VOCAB
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


def end_ids(config: Fields) -> SpecialTokens:
    """The ids at which a config.json ends an answer: eos_token_id, a number or several."""
    stated = config.get("eos_token_id")
    ids = stated if isinstance(stated, list) else [] if stated is None else [stated]
    if len(ids) > 64 or any(type(i) is not int or not 0 <= i < MAX_VOCAB for i in ids):
        raise config.fail("eos_token_id", stated, "a token id, or at most 64 of them")
    return SpecialTokens(eos=ids[0] if ids else None, end_ids=frozenset(ids))
