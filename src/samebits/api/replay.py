"""Answers made again from their receipts: verified like prompts, many in a batch, and compared hash by hash."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from samebits.core.errors import BadInput, SamebitsError
from samebits.core.grammar_library import grammar_library
from samebits.core.sampling_defaults import NEUTRAL
from samebits.engine.engine import Engine
from samebits.engine.job import Generation
from samebits.engine.notary import params_of
from samebits.engine.request_options import RequestOptions
from samebits.engine.sampling import SamplingParams, TokenMask
from samebits.grammar.masking import Masking, NotCompiled
from samebits.grammar.process import vocabulary_of
from samebits.loaders import Tokenizer
from samebits.receipts.chain import LogitsChain
from samebits.receipts.record import CUT, Receipt, Said
from samebits.receipts.verdict import Cause, Here, Verdict, compared, with_seal

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

MAX_AT_ONCE = 64  # receipts; a grammar is a process of its own
LOGITS_DIFFER = frozenset((Cause.PROMPT, Cause.LINK))  # what no mask explains


@dataclass(frozen=True)
class _Run:
    """A receipt that is replayed, with the part of its answer that is looked at."""

    receipt: Receipt
    stated: Said
    job: Generation

    @property
    def is_whole(self) -> bool:
        return len(self.stated.token_ids) == len(self.receipt.answer.token_ids)


class Replayer:
    """Checks receipts with a model that is loaded.

    path         of the model's file or folder, for grammars
    public_key   with which receipts must be signed; if absent, signatures are not looked at
    max_tokens   of each answer, how many tokens to check; all if absent
    """

    def __init__(
        self,
        engine: Engine,
        tokenizer: Tokenizer,
        path: Path,
        *,
        public_key: Ed25519PublicKey | None = None,
        max_tokens: int | None = None,
    ) -> None:
        self._engine, self._public_key, self._max_tokens = engine, public_key, max_tokens
        self._vocabulary = vocabulary_of(path, engine.runner.vocab_size, tokenizer.special)

    def replay(self, receipts: Sequence[Receipt]) -> list[Verdict]:
        """A verdict for each, in order."""
        return [v for at in range(0, len(receipts), MAX_AT_ONCE) for v in self._wave(receipts[at : at + MAX_AT_ONCE])]

    def _wave(self, receipts: Sequence[Receipt]) -> list[Verdict]:
        runs: dict[int, _Run] = {}
        verdicts: dict[int, Verdict] = {}
        with Masking(self._vocabulary) as masking:
            try:
                for number, receipt in enumerate(receipts):
                    started = self._refusal(receipt) or self._started(receipt, masking)
                    if isinstance(started, Verdict):
                        verdicts[number] = started
                    else:
                        runs[number] = started
            except BaseException:  # none of them is run
                for run in runs.values():
                    self._engine.cancel(run.job)
                raise
            self._engine.complete(*(run.job for run in runs.values()))
        found = {number: self._verdict(run) for number, run in runs.items()}
        self._look_behind({n: run for n, run in runs.items() if found[n].cause is Cause.TOKEN}, found)
        here = Here(self._engine.notary.model.name, self._engine.runner.context_len)
        verdicts |= {n: replace(self._excused(runs[n].receipt, v), here=here) for n, v in found.items()}
        return [with_seal(verdicts[number], receipt) for number, receipt in enumerate(receipts)]

    def _refusal(self, receipt: Receipt) -> Verdict | None:
        """Why it is not run; None where it can be."""
        if self._public_key is not None:
            from samebits.receipts.signing import is_signed_by

            if not is_signed_by(receipt, self._public_key):
                return Verdict(0, Cause.SIGNATURE, detail="" if receipt.signature else "it is not signed")
        for cause, stated, here in self._circumstances(receipt):
            if stated != here:
                return Verdict(0, cause, None, str(stated), str(here))
        return None

    def _circumstances(self, receipt: Receipt) -> Iterator[tuple[Cause, object, object]]:
        """What must be the same for bits to be: (its cause, as stated, as here)."""
        ours, its, here = self._engine.notary, receipt.model, self._engine.notary.model
        yield Cause.WEIGHTS, its.weights_sha256, here.weights_sha256
        yield Cause.TOKENIZER, its.tokenizer_sha256, here.tokenizer_sha256
        yield Cause.CHAT_TEMPLATE, its.chat_template_sha256, here.chat_template_sha256
        yield Cause.NUMERICS, receipt.numerics.version, ours.numerics.version
        yield Cause.TIER, receipt.numerics.tier, ours.numerics.tier
        for name in ("k_format", "v_format"):
            yield Cause.CACHE_FORMAT, getattr(receipt.numerics, name), getattr(ours.numerics, name)
        for name in ("backend", "device", "build"):
            yield Cause.PLACE, getattr(receipt.place, name, None), getattr(ours.place, name, None)
        runner, stated = self._engine.runner, receipt.numerics.max_positions
        if stated is not None and runner.rotation(stated) != runner.rotation(runner.limits.max_positions):
            yield Cause.CONTEXT, stated, runner.limits.max_positions

    def _excused(self, receipt: Receipt, verdict: Verdict) -> Verdict:
        """Return the verdict, or a softer one if the difference may come from what was not the same here.

        An old receipt does not state the positions of its rotary tables, and no receipt's masks are promised to be the
        same in another version of the library that compiled its grammar.
        """
        cause, grammar = verdict.cause, receipt.grammar
        if cause is None or not verdict.is_checked:
            return verdict
        if self._engine.runner.switch_lens and receipt.numerics.max_positions is None:
            detail = "the receipt does not state the context that the model was opened with"
            return Verdict(0, Cause.CONTEXT, detail=detail)
        if grammar is None or cause in LOGITS_DIFFER or grammar.library == grammar_library():
            return verdict
        if grammar.library is None:
            return replace(verdict, detail="the receipt does not state the library that compiled its grammar")
        return Verdict(verdict.num_tokens, Cause.GRAMMAR, None, grammar.library, grammar_library() or "none")

    def _started(self, receipt: Receipt, masking: Masking) -> _Run | Verdict:
        said, longest = receipt.answer, self._engine.max_len
        most = len(said.token_ids) if self._max_tokens is None else min(self._max_tokens, len(said.token_ids))
        stated = replace(said, token_ids=said.token_ids[:most], links=said.links[:most])
        num_tokens = len(receipt.prompt_ids) + most
        if num_tokens > longest:
            return Verdict(0, Cause.UNCHECKED, detail=f"{num_tokens} tokens, and the context has room for {longest}")
        make_mask: Callable[[], TokenMask] | None = None
        try:
            params = params_of(receipt.sampling)
            if receipt.grammar is not None:
                make_mask = masking.maker(receipt.grammar)
            options = RequestOptions(
                make_mask=make_mask,
                grammar=receipt.grammar,
                drafted=stated.token_ids,
                sample_indices=[receipt.sample_index],
            )
            job = self._engine.generate(receipt.prompt_ids, replace(params, receipt=True), options)
        except NotCompiled as error:
            is_known = receipt.grammar is not None and receipt.grammar.library == grammar_library()
            return Verdict(0, Cause.UNREADABLE if is_known else Cause.UNCHECKED, detail=str(error))
        except BadInput as error:
            return Verdict(0, Cause.UNREADABLE, detail=str(error))
        except SamebitsError as error:
            return Verdict(0, Cause.UNCHECKED, detail=str(error))
        return _Run(receipt, stated, job)

    def _verdict(self, run: _Run) -> Verdict:
        if run.job.error is not None:
            return Verdict(0, Cause.UNCHECKED, detail=run.job.error)
        made = run.job.completions()[0].receipt
        if made is None:
            return Verdict(0, Cause.UNCHECKED, detail="it was interrupted")
        found, receipt = made.answer, run.receipt
        verdict = compared(run.stated, found)
        if verdict.cause is not None or not run.is_whole:
            return verdict
        num_tokens, said = verdict.num_tokens, receipt.answer
        is_cut = said.finish_reason in CUT
        was_drawn = bool(said.token_ids) or not is_cut  # else it was cut in the prompt, even one that wants no tokens
        if was_drawn and (end := _end_of(receipt, found)) != ("unfinished" if is_cut else said.finish_reason):
            return Verdict(num_tokens, Cause.END, None, said.finish_reason, end)
        if found.text_sha256 != said.text_sha256:
            return Verdict(num_tokens, Cause.TEXT, None, said.text_sha256, found.text_sha256)
        return verdict if said.token_ids else Verdict(0, Cause.NOTHING)

    def _look_behind(self, runs: dict[int, _Run], verdicts: dict[int, Verdict]) -> None:
        """Correct verdicts of tokens that are not drawn although the links have them: a parameter was changed.

        The link behind it tells, which depends on the token but on no parameter.
        """
        jobs: dict[int, Generation] = {}
        for number, run in runs.items():
            at = verdicts[number].position
            is_drawn_otherwise = at is not None and run.stated.links[: at + 1] == _links(run)[: at + 1]
            if at is None or not is_drawn_otherwise or at + 1 == len(run.stated.links):
                continue
            tokens = (*run.receipt.prompt_ids, *run.stated.token_ids[: at + 1])
            params = SamplingParams(max_tokens=1, temperature=0, receipt=True).resolved(NEUTRAL)
            jobs[number] = self._engine.generate(tokens, params)
            jobs[number].answers[0].chain = LogitsChain(bytes.fromhex(run.stated.links[at]))
        self._engine.complete(*jobs.values())
        for number, job in jobs.items():
            at, chain = verdicts[number].position or 0, job.answers[0].chain
            if chain is not None and chain.links == [runs[number].stated.links[at + 1]]:
                verdicts[number] = replace(verdicts[number], cause=Cause.SAMPLING)


def _links(run: _Run) -> tuple[str, ...]:
    chain = run.job.answers[0].chain
    return tuple(chain.links) if chain else ()


def _end_of(receipt: Receipt, found: Said) -> str:
    """Why an answer with all these tokens ended, in the context that it was made in, which may not be this one's."""
    if found.finish_reason == "stop":
        return "stop"
    longest = min(receipt.context_len, len(receipt.prompt_ids) + receipt.sampling.max_tokens)
    return "length" if len(receipt.prompt_ids) + len(found.token_ids) >= longest else "unfinished"
