"""Messages from a program: one per line, answers as plain text or as JSON."""

from __future__ import annotations

import sys
from collections.abc import Iterable

import click

from samebits.cli.chat.talk import Figures, MessageTooLong, Talk
from samebits.cli.generate import answer_facts, print_answers
from samebits.cli.output import emit


def answer_lines(talk: Talk, lines: Iterable[str], as_json: bool) -> int:
    """Answers every line that is not empty, as one conversation; the number of those that were too long."""
    num_refused = 0
    for line in lines:
        text = line.rstrip("\n")
        if not text.strip():
            continue
        try:
            prompt = talk.prompt(text)
        except MessageTooLong as error:
            num_refused += 1
            click.echo(f"error: {error}", err=True)
            continue
        talk.conversation.add_turn(text, answer(talk, prompt, as_json))
    return num_refused


def answer(talk: Talk, prompt: list[int], as_json: bool, indent: int | None = None) -> str:
    """Shows the answers to a prompt, reasoning on standard error; the text of the first."""
    params = talk.params
    if as_json or params.n > 1:
        found = talk.answers(prompt)
        emit(answer_facts(talk.llm, params, len(prompt), found), as_json, None, indent)
        if not as_json:
            print_answers(talk.llm, found)
        return found[0].text
    said = []
    for part in talk.answer(prompt, Figures(len(prompt), talk.llm.engine.max_len)):
        click.echo(part.text, nl=False, err=part.is_reasoning)
        said.append("" if part.is_reasoning else part.text)
    click.echo()
    if params.temperature:
        click.echo(f"seed {params.seed}", err=True)
    sys.stdout.flush()
    return "".join(said)
