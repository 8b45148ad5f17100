"""`samebits generate`: answers as they come, or as JSON."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import Annotated

from samebits.api.llm import LLM, SamplingParams
from samebits.cli import flags
from samebits.cli.model_options import Loader, sampling_command
from samebits.core.errors import BadInput
from samebits.debug.prepare import parse_tokens
from samebits.loaders.no_tokenizer import NoTokenizer

AsJson = Annotated[bool, flags.Option("--json", help="Print JSON for programs.")]


def answer(llm: LLM, prompt: list[int], params: SamplingParams, as_json: bool) -> str:
    """Shows the answers to one prompt, as token ids where the model has no text for them; the text of the first."""
    has_text = llm.tokenizer.kind != NoTokenizer.kind
    if as_json or params.n > 1 or not has_text:
        answers = llm.generate([prompt], params)
        if as_json:
            facts = {"numerics": llm.numerics, "seed": params.seed, "prompt_tokens": len(prompt)}
            flags.echo(json.dumps({**facts, "answers": [asdict(a) for a in answers]}, ensure_ascii=False, indent=1))
        else:
            for i, a in enumerate(answers):
                shown = a.text if has_text else ",".join(map(str, a.token_ids))
                flags.echo(f"[{i}] {shown}" if params.n > 1 else shown)
        return answers[0].text
    parts = []
    for piece in llm.stream(prompt, params):
        flags.echo(piece.text, nl=False, err=not piece.is_answer)
        parts.append(piece.text if piece.is_answer else "")
    flags.echo()
    if params.temperature:
        flags.echo(f"seed {params.seed}", err=True)
    return "".join(parts)


@sampling_command
def generate(
    load: Loader,
    params: SamplingParams,
    prompt: Annotated[str | None, flags.Argument(help="The text to continue; - reads standard input.")] = None,
    tokens: Annotated[
        str | None, flags.Option("--tokens", help="Token ids to continue instead, such as 504,3575,282.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Continue a text, or token ids where the model has no tokenizer."""
    if (prompt is None) == (tokens is None):
        given = "none of them" if prompt is None else "both"
        raise BadInput("generate", "PROMPT and --tokens", given, "one of them")
    ids = None if tokens is None else parse_tokens("generate", tokens)
    text = sys.stdin.read() if prompt == "-" else prompt or ""
    llm = load()
    answer(llm, llm.encode(text) if ids is None else ids, params, as_json)
