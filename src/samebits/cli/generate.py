"""`samebits generate` and `samebits chat`: answers as they come, or as JSON."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import Annotated

import typer

from samebits.api.llm import LLM, SamplingParams
from samebits.cli.model_options import Loader, sampling_command
from samebits.core.errors import BadInput
from samebits.loaders.chat import start_renderer

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]


def answer(llm: LLM, prompt: list[int], params: SamplingParams, as_json: bool) -> str:
    """Shows the answers to one prompt; returns the text of the first."""
    if as_json or params.n > 1:
        answers = llm.generate([prompt], params)
        if as_json:
            facts = {"numerics": llm.numerics, "seed": params.seed, "prompt_tokens": len(prompt)}
            typer.echo(json.dumps({**facts, "answers": [asdict(a) for a in answers]}, ensure_ascii=False, indent=1))
        else:
            for i, text in enumerate(a.text for a in answers):
                typer.echo(f"[{i}] {text}")
        return answers[0].text
    parts = []
    for piece in llm.stream(prompt, params):
        parts.append(piece.text)
        typer.echo(piece.text, nl=False)
    typer.echo()
    if params.temperature:
        typer.echo(f"seed {params.seed}", err=True)
    return "".join(parts)


@sampling_command
def generate(
    prompt: Annotated[str, typer.Argument(help="The text to continue; - reads standard input.")],
    load: Loader,
    params: SamplingParams,
    as_json: AsJson = False,
) -> None:
    """Continue a text."""
    text = sys.stdin.read() if prompt == "-" else prompt
    llm = load()
    answer(llm, llm.encode(text), params, as_json)


@sampling_command
def chat(
    load: Loader,
    params: SamplingParams,
    message: Annotated[
        str | None, typer.Argument(help="What to say; if absent, a conversation is read line by line.")
    ] = None,
    system: Annotated[str | None, typer.Option("--system", help="A system message in place of the template's.")] = None,
    as_json: AsJson = False,
) -> None:
    """Talk to the model through its own chat template."""
    if message is not None and not message.strip():
        raise BadInput("chat", "message", "nothing", "some text")
    start_renderer()
    llm = load()
    messages = [{"role": "system", "content": system}] if system else []
    lines = iter([message]) if message is not None else (line.rstrip("\n") for line in sys.stdin)
    for line in lines:
        if line.strip():
            messages.append({"role": "user", "content": line})
            text = answer(llm, llm.chat_prompt(messages), params, as_json)
            messages.append({"role": "assistant", "content": text})
