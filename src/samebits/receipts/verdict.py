"""What a replay finds: the same bits, or the first difference and what it likely comes from."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from samebits.receipts.record import Receipt, Said

SHORT = 16  # digits of a hash in a line for people


class Cause(StrEnum):
    """Why a receipt is not confirmed."""

    UNREADABLE = "unreadable"  # no receipt, or wishes that no request can have
    SIGNATURE = "signature"
    # other circumstances: nothing was run
    WEIGHTS = "weights"
    TOKENIZER = "tokenizer"
    CHAT_TEMPLATE = "chat template"
    NUMERICS = "numerics"
    TIER = "tier"
    CACHE_FORMAT = "cache format"
    PLACE = "place"
    UNCHECKED = "unchecked"  # something is missing here, or the replay failed
    # what was computed is not what is stated
    PROMPT = "prompt"
    TOKEN = "token"
    SAMPLING = "sampling"
    LINK = "link"
    END = "end"
    TEXT = "text"
    SEAL = "seal"


NOT_CHECKED = frozenset(
    (
        Cause.WEIGHTS,
        Cause.TOKENIZER,
        Cause.CHAT_TEMPLATE,
        Cause.NUMERICS,
        Cause.TIER,
        Cause.CACHE_FORMAT,
        Cause.PLACE,
        Cause.UNCHECKED,
    )
)
WORDS = {
    Cause.PROMPT: "the logits of the first token are others: the prompt or the first link was changed",
    Cause.TOKEN: "the model does not go on like this: a token of the answer was changed, added or dropped",
    Cause.SAMPLING: "the answer has this token, but its seed or another wish would draw another one",
    Cause.LINK: "the logits are others, though all tokens before are drawn as stated: a link was changed",
    Cause.END: "the answer ends in another way: its end, its length or a wish about its end was changed",
    Cause.TEXT: "the tokens are the same, their text is another one: the hash of the text was changed",
    Cause.SEAL: "all bits are the same, but the receipt was changed where no bit depends on it",
    Cause.SIGNATURE: "the signature is not one of this key over this receipt",
    Cause.WEIGHTS: "other weights",
    Cause.TOKENIZER: "another tokenizer",
    Cause.CHAT_TEMPLATE: "another chat template",
    Cause.NUMERICS: "another version of the numerics",
    Cause.TIER: "another tier",
    Cause.CACHE_FORMAT: "another format of cached keys or values",
    Cause.PLACE: "a tier below portable is checked only on the same device and build",
    Cause.UNCHECKED: "it cannot be checked here",
    Cause.UNREADABLE: "no receipt that can be read",
}


@dataclass(frozen=True)
class Verdict:
    """On one receipt.

    num_tokens         of the answer that were found to be the same; all of them where `is_same`
    position           of the first token of the answer with a difference, where there is one
    stated, computed   the two hashes, tokens or words that differ
    """

    num_tokens: int
    cause: Cause | None = None
    position: int | None = None
    stated: str | None = None
    computed: str | None = None
    detail: str = ""

    @property
    def is_same(self) -> bool:
        return self.cause is None

    @property
    def is_checked(self) -> bool:
        """Whether it says something of the receipt, and not of where it was looked at."""
        return self.cause not in NOT_CHECKED

    def line(self, receipt: Receipt | None, backend: str) -> str:
        """For people. receipt: None for one that could not be read."""
        if self.cause is None and receipt is not None:
            name, numerics = receipt.model.name, receipt.numerics.version
            tier = "" if receipt.numerics.tier == "portable" else f", {receipt.numerics.tier}"
            return f"same bits: {self.num_tokens} tokens, model {name}, numerics {numerics}{tier}, {backend}"
        if self.cause is Cause.UNREADABLE:
            return f"{WORDS[Cause.UNREADABLE]}: {self.detail}"
        verb = "differs" if self.is_checked else "not checked"
        where = "" if self.position is None else f" at token {self.position}"
        pair = "" if self.stated is None else f" (stated {_short(self.stated)}, found {_short(self.computed or '')})"
        return f"{verb}{where}: {WORDS[self.cause or Cause.UNCHECKED]}{pair}{': ' if self.detail else ''}{self.detail}"

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "same": self.is_same,
            "checked": self.is_checked,
            "cause": self.cause,
            "position": self.position,
            "stated": self.stated,
            "computed": self.computed,
            "num_tokens": self.num_tokens,
            "detail": self.detail,
        }


def _short(text: str) -> str:
    return f"{text[:SHORT]}..." if len(text) > 2 * SHORT else text


def first_other(stated: tuple[str, ...], found: tuple[str, ...]) -> int | None:
    """The first place at which two chains differ, as far as both go."""
    return next((i for i, (a, b) in enumerate(zip(stated, found, strict=False)) if a != b), None)


def is_diverged(stated: Said, found: Said) -> bool:
    """Whether the last token that was drawn is not the one that is stated there."""
    last = len(found.token_ids) - 1
    return last >= 0 and stated.token_ids[last] != found.token_ids[last]


def compared(stated: Said, found: Said) -> Verdict:
    """What tokens and links say; of a token that is not drawn, `TOKEN`, where a look at the next link may say more.

    found   its tokens are those stated up to its last, which may be another one
    """
    at, num_drawn = first_other(stated.links, found.links), len(found.token_ids)
    if at is not None:
        pair = stated.links[at], found.links[at]
        if at == num_drawn - 1 and is_diverged(stated, found):
            return Verdict(at, Cause.PROMPT if at == 0 else Cause.TOKEN, at, *pair)
        is_alone = at + 1 < num_drawn and stated.links[at + 1] == found.links[at + 1]
        return Verdict(at, Cause.PROMPT if at == 0 and not is_alone else Cause.LINK, at, *pair)
    if is_diverged(stated, found):
        last = num_drawn - 1
        return Verdict(last, Cause.TOKEN, last, f"token {stated.token_ids[last]}", f"token {found.token_ids[last]}")
    if num_drawn < len(stated.token_ids):
        return Verdict(num_drawn, Cause.END, num_drawn, "more tokens", f"{found.finish_reason} before it")
    return Verdict(num_drawn)
