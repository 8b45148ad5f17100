"""`samebits chat` and `samebits run`: one message, lines from a program, or a conversation at a terminal."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import click

from samebits.cli import flags
from samebits.cli.chat import conversation as conversations
from samebits.cli.chat.conversation import Conversation
from samebits.cli.chat.lines import answer, answer_lines
from samebits.cli.chat.talk import Figures, Talk
from samebits.cli.model_options import Loader, given_wishes, sampling_command, with_options
from samebits.cli.model_words import model_and_message, model_named_once, only_message
from samebits.cli.receipt_file import ReceiptPath, SignKey, receipt_file
from samebits.core.errors import BadInput
from samebits.engine.sampling import SamplingParams
from samebits.loaders.chat import start_renderer


def _is_terminal() -> bool:
    """Whether someone sits there: both ends are terminals, and not a dumb one."""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


# The options that `chat` and `run` have in common, by their fields in Call, each with its default.
TALK_OPTIONS: dict[str, tuple[Any, Any]] = {
    "prompt": (
        Annotated[str | None, flags.Option("--prompt", "-p", help="The message, in place of the argument.")],
        None,
    ),
    "system": (
        Annotated[str | None, flags.Option("--system", help="A system message in place of the template's.")],
        None,
    ),
    "load_file": (
        Annotated[Path | None, flags.Option("--load", help="Continue a conversation that /save wrote to this file.")],
        None,
    ),
    "receipt": (ReceiptPath, None),
    "sign_key": (SignKey, None),
    "as_json": (
        Annotated[bool, flags.Option("--json", help="Print JSON for programs, an object per answer.")],
        False,
    ),
}


@dataclass(frozen=True)
class Call:
    """A call of `chat` or `run`: the command's name, and the values of TALK_OPTIONS."""

    command: str
    prompt: str | None
    system: str | None
    load_file: Path | None
    receipt: Path | None
    sign_key: Path | None
    as_json: bool


def talk_command(command: Callable[..., None]) -> Callable[..., None]:
    """Gives `command(load=..., params=..., call=...)` the options of the model, of sampling and of TALK_OPTIONS."""

    def call(**given: Any) -> None:
        options = {name: given.pop(name) for name in TALK_OPTIONS}
        command(call=Call(command.__name__, **options), **given)

    return sampling_command(with_options(command, TALK_OPTIONS, {"call"}, call))


@talk_command
def chat(
    load: Loader,
    params: SamplingParams,
    call: Call,
    first: Annotated[
        str | None,
        flags.Argument(metavar="[MODEL]", help="The name of a model, or its file or folder; anything else is MESSAGE."),
    ] = None,
    second: Annotated[
        str | None,
        flags.Argument(
            metavar="[MESSAGE]", help="The message; without one, chat at the terminal, or answer a pipe line by line."
        ),
    ] = None,
) -> None:
    """Talk to the model through its own chat template.

    At a terminal there are line editing, history, markdown and commands, which /help lists. From a pipe, every line is
    a message, and answers are plain text.

    Exit status: 0, 1 if some of several lines were too long to be answered, 2 for a mistake in the call.
    """
    model, message = model_and_message(first, second)
    _talk(load, params, model_named_once(call.command, model), only_message(call.command, message, call.prompt), call)


@talk_command
def run(
    load: Loader,
    params: SamplingParams,
    call: Call,
    name: Annotated[
        str | None,
        flags.Argument(metavar="MODEL", help="The model: a short name, a path, hf:owner/repo or an address."),
    ] = None,
    message: Annotated[
        str | None,
        flags.Argument(help="The message; without one, chat at the terminal, or answer a pipe line by line."),
    ] = None,
) -> None:
    """Talk to a model. The model is downloaded first if needed; `samebits chat` has the same options.

    Exit status: 0, 1 if some of several lines were too long to be answered, 2 for a mistake in the call.
    """
    _talk(load, params, model_named_once(call.command, name), only_message(call.command, message, call.prompt), call)


def _talk(load: Loader, params: SamplingParams, model: str, message: str | None, call: Call) -> None:
    """Answer one message, lines from a pipe, or hold a conversation at a terminal."""
    if message is not None and not message.strip():
        raise BadInput(call.command, "MESSAGE", "nothing", "some text")
    is_shown = not call.as_json and _is_terminal()
    if message is None and is_shown and params.n > 1:
        raise BadInput(call.command, "--samples", params.n, "1 in a conversation at a terminal")
    receipts = receipt_file(call.receipt, call.sign_key)
    conversation = Conversation()
    if call.load_file is not None:
        conversation, settings = conversations.load(call.load_file)
        params = replace(conversations.sampling_of(settings, params), **given_wishes(params))
    if call.system is not None:
        conversation.set_system(call.system)
    start_renderer()
    if is_shown:  # imports that take their time, beside the loading of weights
        needed = "samebits.cli.chat.screen" if message else "samebits.cli.chat.session"
        threading.Thread(target=import_module, args=(needed,), daemon=True).start()
    talk = Talk(load(model), params, conversation, receipts)
    if message is None and is_shown:
        _converse(talk, model, load)
    elif message is None:
        sys.exit(1 if answer_lines(talk, sys.stdin, call.as_json) else 0)
    elif is_shown and params.n == 1:
        _show(talk, talk.prompt(message))
    else:
        answer(talk, talk.prompt(message), call.as_json, indent=1)


def _show(talk: Talk, prompt: list[int]) -> None:
    """One answer at a terminal."""
    from rich.console import Console

    from samebits.cli.chat.screen import Screen

    figures = Figures(len(prompt), talk.llm.engine.max_len)
    Screen(Console()).show(talk.answer(prompt, figures), lambda: figures.line)
    seed = f", seed {talk.params.seed}" if talk.params.temperature else ""
    click.echo(click.style(figures.line + seed, dim=True), err=True)


def _converse(talk: Talk, model: str, load: Loader) -> None:
    """A conversation at a terminal."""
    from rich.console import Console

    from samebits.cli.chat.session import Session

    Session(talk, model, load, Console()).run()
