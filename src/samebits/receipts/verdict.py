"""What a replay finds: the same bits, or the first difference and what it likely comes from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from samebits.core.printable import printable
from samebits.receipts.record import CUT, Receipt, Said

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
    CONTEXT = "context"
    GRAMMAR = "grammar library"
    NOTHING = "no tokens"
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
        Cause.CONTEXT,
        Cause.GRAMMAR,
        Cause.NOTHING,
        Cause.UNCHECKED,
    )
)
WORDS = {
    Cause.PROMPT: "the logits of the first token are others: the prompt or the first link was changed",
    Cause.TOKEN: "the model does not go on like this: a token of the answer was changed, added or dropped",
    Cause.SAMPLING: "the answer has this token, but its seed or another wish would draw another one",
    Cause.LINK: "the logits are others, though all tokens before are drawn as stated: a link was changed",
    Cause.END: "the answer ends in another way: its end, its length or a stop condition was changed",
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
    Cause.CONTEXT: "the model was opened with another context, on which its rotary angles depend",
    Cause.GRAMMAR: "the answer is another one, and so is the library that compiled its grammar",
    Cause.NOTHING: "the answer has no tokens, so there was nothing to compare",
    Cause.UNCHECKED: "it cannot be checked here",
    Cause.UNREADABLE: "no receipt that can be read",
}


@dataclass(frozen=True)
class Here:
    """The model that a receipt was replayed on: what it is called here, and the context that it allows."""

    name: str
    context_len: int


@dataclass(frozen=True)
class Verdict:
    """The result for one receipt.

    num_tokens         tokens of the answer that were compared and found to be the same
    cause              None if they have the same bits
    position           of the token where a difference shows, from 0
    stated, computed   what the receipt says there, and what was found
    num_answer_tokens  tokens of the whole answer; None if the receipt could not be read
    here               the model that was run; None if none was
    """

    num_tokens: int
    cause: Cause | None = None
    position: int | None = None
    stated: str | None = None
    computed: str | None = None
    detail: str = ""
    num_answer_tokens: int | None = None
    here: Here | None = None

    @property
    def is_same(self) -> bool:
        return self.cause is None

    @property
    def is_checked(self) -> bool:
        """Return whether the receipt was judged; False if this machine could not check it."""
        return self.cause not in NOT_CHECKED

    @property
    def is_whole(self) -> bool:
        """Return whether every token of the answer was compared."""
        return self.num_tokens == self.num_answer_tokens

    def line(self, receipt: Receipt | None, backend: str) -> str:
        """Return one line for people, free of control characters. receipt: None for one that could not be read."""
        return printable(self._text(receipt, backend), max_chars=None)

    def _text(self, receipt: Receipt | None, backend: str) -> str:
        if self.cause is None and receipt is not None:
            return self._same(receipt, backend)
        if self.cause is Cause.UNREADABLE:
            return f"{WORDS[Cause.UNREADABLE]}: {self.detail}"
        verb = "differs" if self.is_checked else "not checked"
        where = "" if self.position is None else f" at token {self.position}"
        pair = "" if self.stated is None else f" (stated {_short(self.stated)}, found {_short(self.computed or '')})"
        return f"{verb}{where}: {self._words()}{pair}{': ' if self.detail else ''}{self.detail}"

    def _words(self) -> str:
        if self.cause is Cause.SEAL and not self.num_tokens:
            return "the receipt was changed after it was made: its own SHA-256 is of another content"
        if self.cause is Cause.SEAL and not self.is_whole:
            return f"the receipt was changed after it was made; {self._count()} have the same bits"
        return WORDS[self.cause or Cause.UNCHECKED]

    def _count(self) -> str:
        of = "" if self.is_whole or self.num_answer_tokens is None else f" of {self.num_answer_tokens}"
        return f"{self.num_tokens}{of} tokens"

    def _same(self, receipt: Receipt, backend: str) -> str:
        numerics, stated, name = receipt.numerics, receipt.model.name, receipt.model.name
        if self.here is not None:
            name = self.here.name
        called = "" if stated == name else f" (the receipt calls it {_short(stated)!r})"
        tier = "" if numerics.tier == "portable" else f", {numerics.tier}"
        told = f"same bits: {self._count()}, model {name}{called}, numerics {numerics.version}{tier}, {backend}"
        if not self.is_whole:
            return f"{told}; the end was not compared"
        end = receipt.answer.finish_reason
        end = f"{end}, which is not recomputed" if end in CUT else end
        limit = "" if self.here is None else f" of {self.here.context_len}"
        return f"{told}; end: {end}, context {receipt.context_len}{limit}"

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "same": self.is_same,
            "checked": self.is_checked,
            "whole": self.is_whole,
            "cause": self.cause,
            "position": self.position,
            "stated": self.stated,
            "computed": self.computed,
            "num_tokens": self.num_tokens,
            "num_answer_tokens": self.num_answer_tokens,
            "model_here": self.here.name if self.here else None,
            "model_context_len": self.here.context_len if self.here else None,
            "detail": self.detail,
        }


def with_seal(verdict: Verdict, receipt: Receipt) -> Verdict:
    """Return the verdict, or SEAL if nothing worse was found and the receipt's own SHA-256 is of another content.

    A broken seal needs no model, so it also decides where the receipt could not be checked.
    """
    verdict = replace(verdict, num_answer_tokens=len(receipt.answer.token_ids))
    if verdict.is_checked and not verdict.is_same:
        return verdict
    if receipt.sha256 in (None, computed := receipt.computed_sha256()):
        return verdict
    detail = "" if verdict.cause is None else f"not checked further: {WORDS[verdict.cause]}"
    return replace(verdict, cause=Cause.SEAL, position=None, stated=receipt.sha256, computed=computed, detail=detail)


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
