"""The line that is typed: a prompt mark, editing, history, several lines, completion of commands."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

from samebits.cli.state import state_dir
from samebits.core.errors import BadInput

MARK, FURTHER_MARK = "> ", ". "
WITH_FILES = ("/save", "/load", "/model")


def open_history() -> History:
    """The history of earlier sessions, in a file that is the user's alone; of this one where that cannot be written."""
    try:
        file = state_dir() / "chat_history"
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(file, os.O_RDWR | os.O_CREAT, 0o600))
        file.chmod(0o600)
    except (OSError, BadInput):
        return InMemoryHistory()
    return FileHistory(str(file))


class _CommandCompleter(Completer):
    """Names of commands after a slash, then files where a command takes one."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names, self._paths = list(names), PathCompleter(expanduser=True)

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        text = document.text_before_cursor
        name, space, rest = text.partition(" ")
        if name in WITH_FILES and space:
            yield from self._paths.get_completions(Document(rest), complete_event)
        elif text.startswith("/") and not space:
            yield from (Completion(n, start_position=-len(text)) for n in self._names if n.startswith(text))


def _keys() -> KeyBindings:
    """Enter sends; Alt-Enter and Ctrl-J begin another line. What is pasted may have many."""
    keys = KeyBindings()

    @keys.add("enter")
    def _send(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    @keys.add("escape", "enter")
    @keys.add("c-j")
    def _next_line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return keys


class Editor:
    """Reads what the user types."""

    def __init__(self, commands: Iterable[str], status: Callable[[], str]) -> None:
        self._session: PromptSession[str] = PromptSession(
            history=open_history(),
            multiline=True,
            key_bindings=_keys(),
            completer=_CommandCompleter(commands),
            complete_while_typing=False,
            prompt_continuation=FURTHER_MARK,
            bottom_toolbar=status,
        )

    def read(self) -> str:
        """What was typed; KeyboardInterrupt at Ctrl-C, EOFError at Ctrl-D on an empty line."""
        return self._session.prompt([("bold", MARK)])
