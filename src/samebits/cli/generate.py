"""`samebits generate`: answers as they come, or as JSON."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from samebits.cli import flags
from samebits.cli.model_options import Loader, sampling_command
from samebits.cli.model_words import only_message
from samebits.cli.output import AsJson, Output, emit
from samebits.cli.receipt_file import ReceiptFile, ReceiptPath, SignKey, receipt_file
from samebits.core.errors import BadInput
from samebits.core.files import check_target
from samebits.engine.sampling import SamplingParams
from samebits.loaders.no_tokenizer import NoTokenizer

if TYPE_CHECKING:  # imported when a model is loaded
    from samebits.api.llm import LLM
    from samebits.engine.answer import Completion


def answer_facts(llm: LLM, params: SamplingParams, num_prompt: int, answers: Sequence[Completion]) -> dict[str, Any]:
    """Answers to a prompt, for programs."""
    facts: dict[str, Any] = {"numerics": llm.numerics, "seed": params.seed, "prompt_tokens": num_prompt}
    if (guessed := llm.engine.speculation) is not None:
        facts["speculation"] = {"drafted_tokens": guessed.num_drafted, "accepted_tokens": guessed.num_taken}
    return {**facts, "answers": [_facts(a) for a in answers]}


def _facts(answer: Completion) -> dict[str, Any]:
    """An answer with its receipt as that is written to a file."""
    receipt = answer.receipt.as_dict() if answer.receipt else None
    return {**asdict(replace(answer, receipt=None)), "receipt": receipt}


def print_answers(llm: LLM, answers: Sequence[Completion]) -> None:
    """Answers for people, numbered if they are several; as token ids where the model has no text for them."""
    has_text = llm.tokenizer.kind != NoTokenizer.kind
    for number, answer in enumerate(answers):
        shown = answer.text if has_text else ",".join(map(str, answer.token_ids))
        flags.echo(f"[{number}] {shown}" if len(answers) > 1 else shown)


def answer(
    llm: LLM,
    prompt: list[int],
    params: SamplingParams,
    as_json: bool,
    output: Path | None,
    receipts: ReceiptFile | None = None,
) -> None:
    """Shows the answers to one prompt: as it comes if it is one, a text, and for people alone."""
    params = replace(params, receipt=receipts is not None).resolved(llm.sampling_defaults)
    if as_json or output or params.n > 1 or llm.tokenizer.kind == NoTokenizer.kind:
        answers = llm.generate([prompt], params)
        if receipts:
            receipts.add(a.receipt for a in answers)
        emit(answer_facts(llm, params, len(prompt), answers), as_json, output)
        if not as_json:
            print_answers(llm, answers)
        return
    for piece in llm.stream(prompt, params):
        flags.echo(piece.text, nl=False, err=not piece.is_answer)
        if receipts and piece.receipt:
            receipts.add([piece.receipt])
    flags.echo()
    if params.temperature:
        flags.echo(f"seed {params.seed}", err=True)


@sampling_command
def generate(
    load: Loader,
    params: SamplingParams,
    text: Annotated[
        str | None, flags.Argument(metavar="[PROMPT]", help="The text to continue; - reads standard input.")
    ] = None,
    prompt: Annotated[str | None, flags.Option("--prompt", "-p", help="The text, in place of the argument.")] = None,
    tokens: Annotated[
        str | None, flags.Option("--tokens", help="Token ids to continue instead, such as 504,3575,282.")
    ] = None,
    receipt: ReceiptPath = None,
    sign_key: SignKey = None,
    as_json: AsJson = False,
    output: Output = None,
) -> None:
    """Continue a text, or token ids where the model has no tokenizer."""
    from samebits.debug.prepare import parse_tokens

    check_target("generate", "--output", output)
    prompt = only_message("generate", text, prompt, "PROMPT")
    if (prompt is None) == (tokens is None):
        given = "nothing" if prompt is None else "both"
        name, needed = ("PROMPT", "a text, or --tokens") if prompt is None else ("PROMPT and --tokens", "one of them")
        raise BadInput("generate", name, given, needed)
    receipts = receipt_file(receipt, sign_key)
    ids = None if tokens is None else parse_tokens("generate", tokens)
    content = sys.stdin.read() if prompt == "-" else prompt or ""
    llm = load()
    answer(llm, llm.encode(content) if ids is None else ids, params, as_json, output, receipts)
