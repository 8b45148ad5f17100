"""`samebits score`: how likely a model finds a text, and the hash of the logits behind it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from rich.console import Console
from rich.table import Table

from samebits.api.llm import LLM
from samebits.cli import flags
from samebits.cli.model_options import Loader, model_command
from samebits.cli.output import AsJson, Output, console_for, emit
from samebits.core.errors import BadInput
from samebits.debug.prepare import parse_tokens
from samebits.engine.text_jobs import Score

MAX_FILE_BYTES = 16 << 20


def _named(llm: LLM, token: int) -> str:
    """A token's text, or its id where it has none."""
    text = llm.tokenizer.decode([token])
    return repr(text) if text else str(token)


def token_ids(llm: LLM, text: str | None, file: Path | None, tokens: str | None) -> list[int]:
    """The ids to score, from exactly one of the three."""
    num_given = sum(x is not None for x in (text, file, tokens))
    if num_given == 0:
        raise BadInput("score", "TEXT", "nothing", "a text, or --file, or --tokens")
    if num_given > 1:
        raise BadInput("score", "TEXT, --file and --tokens", f"{num_given} of three", "one of three")
    if tokens is not None:
        return parse_tokens("score", tokens)
    if file is not None:
        try:
            if file.stat().st_size > MAX_FILE_BYTES:
                raise BadInput("score", "--file", f"{file.stat().st_size} bytes", f"at most {MAX_FILE_BYTES}")
            text = file.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput("score", "--file", f"{file}: {error}", "a UTF-8 text file") from None
    return llm.encode(text or "")


def show(console: Console, llm: LLM, result: Score) -> None:
    """A table for people."""
    table = Table(title="log-probability of each token given those before it")
    for column in ("position", "token", "text", "logprob", "likeliest"):
        table.add_column(column, justify="right" if column in ("position", "token", "logprob") else "left")
    for i, token in enumerate(result.token_ids):
        logprob = f"{result.token_logprobs[i - 1]:.4f}" if i else "-"
        before = result.top[i - 1] if i else ()
        likeliest = ", ".join(f"{_named(llm, t)} {p:.2f}" for t, p in before)
        table.add_row(str(i), str(token), _named(llm, token), logprob, likeliest)
    console.print(table)
    perplexity = "-" if result.perplexity is None else f"{result.perplexity:.4f}"
    console.print(f"log-likelihood {result.log_likelihood:.4f}, perplexity {perplexity}", highlight=False)
    console.print(f"logits sha256 {result.logits_sha256}", highlight=False, soft_wrap=True)


@model_command
def score(
    load: Loader,
    text: Annotated[str | None, flags.Argument(help="The text to score.")] = None,
    file: Annotated[Path | None, flags.Option("--file", help="A text file to score instead.")] = None,
    tokens: Annotated[
        str | None, flags.Option("--tokens", help="Token ids to score instead, such as 504,3575,282.")
    ] = None,
    top_k: Annotated[
        int, flags.Option("--top-k", help="How many of the likeliest tokens to show at every position.", min=0, max=128)
    ] = 3,
    as_json: AsJson = False,
    output: Output = None,
) -> None:
    """Show the log-likelihood of a text under the model, position by position."""
    console = console_for("score", as_json, output=output)
    llm = load()
    result = llm.score(token_ids(llm, text, file, tokens), top_k=top_k)
    if not as_json:
        show(console, llm, result)
    facts = {
        "numerics": llm.numerics,
        "token_ids": result.token_ids,
        "token_logprobs": result.token_logprobs,
        "top": result.top,
        "log_likelihood": result.log_likelihood,
        "perplexity": result.perplexity,
        "logits_sha256": result.logits_sha256,
    }
    emit(facts, as_json, output)
