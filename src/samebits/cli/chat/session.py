"""A conversation at a terminal: what is typed is a message, or a command after a slash."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.text import Text

from samebits.api.llm import LLM
from samebits.cli.chat.conversation import Conversation, load, sampling_of, save
from samebits.cli.chat.editor import Editor
from samebits.cli.chat.interrupts import Interrupt, keys_kept
from samebits.cli.chat.screen import Screen, clean
from samebits.cli.chat.talk import Figures, MessageTooLong, Talk
from samebits.core.errors import BadInput, SamebitsError

WELCOME = "/help lists the commands; Ctrl-C stops an answer, Ctrl-D ends the conversation"
ALIASES = {"/clear": "/reset", "/bye": "/quit", "/exit": "/quit"}
REASONS = {"length": "cut at --max-tokens or the end of the context", "cancelled": "stopped"}


class Session:
    """Reads, answers and obeys until the user leaves.

    load_model(name) gives another model; `model` is the name of the one that answers.
    """

    def __init__(self, talk: Talk, model: str, load_model: Callable[[str], LLM], console: Console) -> None:
        self.talk, self.model, self._load_model, self._console = talk, model, load_model, console
        self._screen, self._interrupt = Screen(console), Interrupt()
        self._status = self._facts()
        names = [name for name in vars(Session) if name.startswith("do_")]
        self._commands: dict[str, Callable[[str], None]] = {f"/{name[3:]}": getattr(self, name) for name in names}
        self._is_over = False

    def run(self) -> None:
        """The whole conversation."""
        editor = Editor([*self._commands, *ALIASES], lambda: self._status)
        self._say(WELCOME)
        with keys_kept():
            self._converse(editor)

    def _converse(self, editor: Editor) -> None:
        while not self._is_over:
            try:
                text = editor.read().strip()
            except KeyboardInterrupt:
                self._say("Ctrl-D or /quit ends the conversation")
                continue
            except EOFError:
                return
            if not text:
                continue
            try:
                if text.startswith("/") and not text.startswith("//"):
                    self._obey(text)
                else:
                    with self._interrupt.caught():
                        self._answer(text.removeprefix("/") if text.startswith("//") else text)
            except KeyboardInterrupt:  # while a model was loaded, for instance
                self._say("interrupted")
            except MessageTooLong as error:  # the conversation is as it was, and goes on
                self._say(f"{error}{'; /reset forgets the conversation' if error.fits_alone else ''}", style="red")
            except (SamebitsError, OSError) as error:
                self._say(str(error), style="red")

    def _facts(self) -> str:
        return f"{Path(self.model).name}, a context of {self.talk.llm.engine.max_len} tokens"

    def _say(self, text: str, style: str = "dim") -> None:
        self._console.print(Text(clean(text), style=style))

    def _answer(self, message: str) -> None:
        """Answer a message and keep both. A message that cannot be sent leaves everything as it was."""
        prompt = self.talk.prompt(message)
        figures = Figures(len(prompt), self.talk.llm.engine.max_len)
        with closing(self.talk.answer(prompt, figures)) as parts:
            answer = self._screen.show(self._interrupt.until(parts), lambda: figures.line)
        if self._interrupt.was_pressed:
            figures.finish_reason = "cancelled"
        self.talk.conversation.add_turn(message, answer)
        reason = REASONS.get(figures.finish_reason or "", "")
        seed = f", seed {self.talk.params.seed}" if self.talk.params.temperature else ""
        self._status = f"{Path(self.model).name}: {figures.line}{seed}{', ' + reason if reason else ''}"

    def _obey(self, line: str) -> None:
        name, _, rest = line.partition(" ")
        name = ALIASES.get(name, name)
        if name not in self._commands:
            given = f"{name}; needs one of {' '.join(self._commands)}"
            self._say(f"unknown command {given}, or // to begin a message with a slash", style="red")
            return
        self._commands[name](rest.strip())

    def do_help(self, _: str) -> None:
        """List the commands."""
        for name, command in self._commands.items():
            names = ", ".join([name, *(alias for alias, meant in ALIASES.items() if meant == name)])
            self._console.print(Text.assemble((f"{names:20}", "bold"), inspect.getdoc(command) or ""))
        self._say("Enter sends; Alt-Enter or Ctrl-J begins another line; // begins a message with a slash")

    def do_reset(self, _: str) -> None:
        """Forget the conversation; the system message stays."""
        self.talk.conversation.forget()
        self._say("the conversation is forgotten")

    def do_regenerate(self, _: str) -> None:
        """Answer the last message again, with a new seed."""
        message, answer = self.talk.conversation.take_turn()
        if self.talk.params.temperature:
            self.talk.stated = replace(self.talk.stated, seed=None).with_seed()
        else:
            self._say("at temperature 0 the answer stays the same; --temperature 0.7 draws another one")
        try:
            with self._interrupt.caught():
                self._answer(message)
        except BaseException:
            self.talk.conversation.add_turn(message, answer)
            raise

    def do_system(self, text: str) -> None:
        """Show the system message, or set it: /system TEXT; /system none removes it."""
        if text:
            self.talk.conversation.set_system(None if text == "none" else text)
        system = self.talk.conversation.system
        self._say("the system message is the template's own" if system is None else f"system message: {system}")

    def do_seed(self, text: str) -> None:
        """Show the seed of the draws, or set it: /seed N."""
        if text:
            if not text.isdecimal():
                raise BadInput("/seed", "seed", repr(text), "a whole number")
            self.talk.stated = replace(self.talk.stated, seed=int(text))
        note = "" if self.talk.params.temperature else "; at temperature 0 nothing is drawn"
        self._say(f"seed {self.talk.params.seed}{note}")

    def do_save(self, text: str) -> None:
        """Write the conversation to a file, as JSON Lines: /save FILE."""
        path = _path("/save", text)
        save(path, self.talk.conversation, self.model, self.talk.params)
        self._say(f"{_turns(self.talk.conversation)} in {path}")

    def do_load(self, text: str) -> None:
        """Continue a conversation from a file: /load FILE."""
        path = _path("/load", text)
        conversation, settings = load(path)
        stated = sampling_of(settings, self.talk.stated)
        self.talk.conversation, self.talk.stated = conversation, stated
        other = settings.get("model", self.model)
        note = "" if other == self.model else f"; it was saved with {other}: /model {other} loads that"
        self._say(f"{_turns(conversation)} from {path}{note}")

    def do_model(self, text: str) -> None:
        """Show the model, or continue with another one: /model NAME."""
        if text:
            self.talk.llm = self._load_model(text)
            self.model = text
        self._status = self._facts()
        self._say(self._status)

    def do_quit(self, _: str) -> None:
        """End the conversation, as Ctrl-D does."""
        self._is_over = True


def _turns(conversation: Conversation) -> str:
    return f"{conversation.num_turns} {'turn' if conversation.num_turns == 1 else 'turns'}"


def _path(command: str, text: str) -> Path:
    if not text:
        raise BadInput(command, "file", "none", f"{command} FILE")
    return Path(text).expanduser()
