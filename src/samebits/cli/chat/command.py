"""The command `samebits chat`: one message, lines from a program, or a conversation at a terminal."""

from __future__ import annotations

import os
import sys
import threading
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Annotated

import click

from samebits.cli import flags
from samebits.cli.chat import conversation as conversations
from samebits.cli.chat.conversation import Conversation
from samebits.cli.chat.lines import answer, answer_lines
from samebits.cli.chat.talk import Figures, Talk
from samebits.cli.model_options import Loader, given_wishes, sampling_command
from samebits.cli.receipt_file import ReceiptPath, SignKey, receipt_file
from samebits.core.errors import BadInput
from samebits.engine.sampling import SamplingParams
from samebits.loaders.chat import start_renderer


def _is_terminal() -> bool:
    """Whether someone sits there: both ends are terminals, and not a dumb one."""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


@sampling_command
def chat(
    load: Loader,
    params: SamplingParams,
    message: Annotated[
        str | None,
        flags.Argument(help="The message; without one, chat at the terminal, or answer a pipe line by line."),
    ] = None,
    system: Annotated[str | None, flags.Option("--system", help="A system message in place of the template's.")] = None,
    load_file: Annotated[
        Path | None, flags.Option("--load", help="Continue a conversation that /save wrote to this file.")
    ] = None,
    receipt: ReceiptPath = None,
    sign_key: SignKey = None,
    as_json: Annotated[bool, flags.Option("--json", help="Print JSON for programs, an object per answer.")] = False,
) -> None:
    """Talk to the model through its own chat template.

    At a terminal there are line editing, history, markdown and commands, which /help lists. From a pipe, every line is
    a message, and answers are plain text.

    Exit status: 0, 1 if some of several lines were too long to be answered, 2 for a mistake in the call.
    """
    if message is not None and not message.strip():
        raise BadInput("chat", "message", "nothing", "some text")
    is_shown = not as_json and _is_terminal()
    if message is None and is_shown and params.n > 1:
        raise BadInput("chat", "--samples", params.n, "1 in a conversation at a terminal")
    receipts = receipt_file(receipt, sign_key)
    conversation = Conversation()
    if load_file is not None:
        conversation, settings = conversations.load(load_file)
        params = replace(conversations.sampling_of(settings, params), **given_wishes(params))
    if system is not None:
        conversation.set_system(system)
    start_renderer()
    if is_shown:  # imports that take their time, beside the loading of weights
        needed = "samebits.cli.chat.screen" if message else "samebits.cli.chat.session"
        threading.Thread(target=import_module, args=(needed,), daemon=True).start()
    talk = Talk(load(), params, conversation, receipts)
    if message is None and is_shown:
        _converse(talk, load)
    elif message is None:
        sys.exit(1 if answer_lines(talk, sys.stdin, as_json) else 0)
    elif is_shown and params.n == 1:
        _show(talk, talk.prompt(message))
    else:
        answer(talk, talk.prompt(message), as_json, indent=1)


def _show(talk: Talk, prompt: list[int]) -> None:
    """One answer at a terminal."""
    from rich.console import Console

    from samebits.cli.chat.screen import Screen

    figures = Figures(len(prompt), talk.llm.engine.max_len)
    Screen(Console()).show(talk.answer(prompt, figures), lambda: figures.line)
    seed = f", seed {talk.params.seed}" if talk.params.temperature else ""
    click.echo(click.style(figures.line + seed, dim=True), err=True)


def _converse(talk: Talk, load: Loader) -> None:
    """A conversation at a terminal."""
    from rich.console import Console

    from samebits.cli.chat.session import Session

    Session(talk, str(click.get_current_context().params["model"]), load, Console()).run()
