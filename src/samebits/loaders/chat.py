"""Chat templates. They are programs from strangers, so they run in a process of their own that is ended if need be."""

from __future__ import annotations

import atexit
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any

from samebits.core.errors import BadInput, SamebitsError
from samebits.core.printable import printable
from samebits.core.systems import own_group

MAX_TEMPLATE_CHARS = 1 << 20
MAX_OUTPUT_CHARS = 8 << 20
MAX_WORKER_BYTES = 1 << 30
MAX_SECONDS = 5.0
START_SECONDS = 60.0  # for the process to come up on a busy machine
FROZEN_TIME = datetime(2024, 7, 26)  # what a clock says that must not move: the date Llama 3's templates fall back to
WORKER = Path(__file__).with_name("chat_worker.py")

DEFAULT, TOOLS = "default", "tool_use"  # names of templates, where a model has several
FINAL_MARK = "\ue000end of the final message\ue000"  # of characters that no text should have


class PromptEnd(Enum):
    """What stands behind the messages of a prompt.

    ANSWER     the beginning of an answer, as the template writes it
    OPEN       nothing
    CONTINUED  nothing either, and the last message is not closed: an answer goes on from it
    """

    ANSWER = "answer"
    OPEN = "open"
    CONTINUED = "continued"


class ChatTemplate:
    """A jinja2 template that turns messages into a prompt. `where` names its file in messages.

    for_tools  the template for conversations with tools, of a model that has one of its own; else the same
    """

    def __init__(self, source: str, where: str, tool_source: str | None = None) -> None:
        if len(source) > MAX_TEMPLATE_CHARS:
            raise BadInput(where, "chat template", f"{len(source)} characters", f"at most {MAX_TEMPLATE_CHARS}")
        self.source = source
        self.where = where
        self.for_tools = self if tool_source is None else ChatTemplate(tool_source, where)

    @property
    def whole_source(self) -> str:
        """The text of both templates, of a model that has two."""
        return self.source if self.for_tools is self else f"{self.source}\n{TOOLS}\n{self.for_tools.source}"

    def names(self, variable: str) -> bool:
        """Whether the template reads a variable of this name, as far as its text tells."""
        return re.search(rf"\b{re.escape(variable)}\b", self.source) is not None

    def render_to_continue(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> str:
        """The prompt up to the end of its last message, which is an assistant's; options as `render`'s.

        BadInput where it is not, or where the template does not show it as it is.
        """
        role, content = messages[-1].get("role"), messages[-1].get("content")
        if role != "assistant" or not isinstance(content, str):
            given = f"{role}'s" if isinstance(content, str) else "no text"
            raise BadInput("chat", "continue_final_message", f"a last message that is {given}", "an assistant's text")
        if any(FINAL_MARK in str(message.get("content")) for message in messages):
            raise BadInput("chat", "messages", "the mark of a message's end", "a text without it")
        marked = [*messages[:-1], {**messages[-1], "content": content + FINAL_MARK}]
        before, mark, _ = self.render(marked, add_generation_prompt=False, **options).rpartition(FINAL_MARK)
        if not mark:
            needed = "a template that shows a last message as it is"
            raise BadInput("chat", "continue_final_message", "a template that changes it", needed)
        return before

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        special_tokens: Mapping[str, str] | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        variables: Mapping[str, Any] | None = None,
        now: datetime | None = None,
        max_seconds: float = MAX_SECONDS,
    ) -> str:
        """The prompt. `special_tokens`: texts by their names; `now` fixes the date of templates that print one.

        BadInput in a line when the template is wrong, refuses the messages, ignores a variable, or breaks a bound.
        """
        given: dict[str, Any] = {
            **(special_tokens or {}),
            "messages": list(messages),
            "add_generation_prompt": add_generation_prompt,
            "tools": None if tools is None else list(tools),
        }
        if taken := given.keys() & (variables or {}).keys():
            raise BadInput(
                "chat", min(taken), "a variable of this name", "one of another name: the template sets it itself"
            )
        given |= variables or {}
        request = {
            "template": self.source,
            "variables": given,
            "own": sorted(variables or {}),
            "now": now.isoformat() if now else None,
            "max_chars": MAX_OUTPUT_CHARS,
        }
        try:
            line = "".join(json.JSONEncoder().iterencode(request))  # in Python, where other threads get their turn
        except (TypeError, ValueError, RecursionError) as error:
            raise BadInput(self.where, "messages", error, "plain data: text, numbers, lists and objects") from None
        reply = _WORKER.ask(line, max_seconds)
        if reply is None:
            given_text = f"still running after {max_seconds:g} s, or out of memory"
            raise BadInput(self.where, "chat template", given_text, "one that ends")
        if "unread" in reply:
            name = str(reply["unread"])
            value = printable(repr((variables or {})[name]))
            raise BadInput("chat", name, value, "nothing: the model's chat template does not read it")
        if "error" in reply:
            text = " ".join(str(reply["error"]).split())[:300]
            raise BadInput(self.where, "chat template", text, "messages that fit it and a template that works")
        return str(reply["text"])


class _Worker:
    """The rendering process: started at the first use, shared by all threads, ended with ours."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._is_up = False
        self._owner = 0  # after a fork the pipes are the parent's
        self._lock = threading.Lock()

    def ask(self, line: str, max_seconds: float) -> dict[str, Any] | None:
        """The worker's reply, or None when it had to be ended; the next call starts a new one."""
        with self._lock:
            process = self._started()
            self._await(process)
            timer = threading.Timer(max_seconds, process.kill)
            timer.start()
            reply = ""
            try:
                if process.stdin is not None and process.stdout is not None:
                    process.stdin.write(line + "\n")
                    process.stdin.flush()
                    reply = process.stdout.readline()
            except (OSError, ValueError):
                reply = ""  # the worker is gone: out of time or of memory
            finally:
                timer.cancel()
                if not reply.endswith("\n"):
                    self._drop()  # also after an interrupt: a late reply must not answer the next request
            return dict(json.loads(reply)) if reply.endswith("\n") else None

    def start(self) -> None:
        """Starts the process without waiting for it; whoever asks will."""
        with self._lock:
            self._started()

    def _started(self) -> subprocess.Popen[str]:
        if self._process is not None and self._owner == os.getpid():
            return self._process
        # as -I would, but with a fixed order of sets, which a template can print
        clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        command = [sys.executable, "-s", "-P", str(WORKER), str(MAX_WORKER_BYTES), str(MAX_SECONDS * 12)]
        self._process = subprocess.Popen(
            command,
            env=clean | {"PYTHONHASHSEED": "0"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            encoding="utf-8",
            **own_group(),  # a Ctrl-C at the terminal is ours to handle
        )
        self._owner, self._is_up = os.getpid(), False
        return self._process

    def _await(self, process: subprocess.Popen[str]) -> None:
        """Wait until it is up, so that no template pays for that. Raise SamebitsError if it does not start.

        The wait is bounded, because other requests and the server's shutdown wait for this lock.
        """
        if self._is_up:
            return
        timer = threading.Timer(START_SECONDS, process.kill)
        timer.start()
        try:
            self._is_up = process.stdout is not None and process.stdout.readline() == "ready\n"
        finally:
            timer.cancel()
            if not self._is_up:
                self._drop()
        if not self._is_up:
            raise SamebitsError(f"chat template: its process did not start; needs jinja2 beside {sys.executable}")

    def _drop(self) -> None:
        process, self._process = self._process, None
        if process is not None and self._owner == os.getpid():
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    _close(stream)

    def close(self) -> None:
        """Ends the process; a later `ask` starts a new one."""
        with self._lock:
            self._drop()


def _close(stream: Any) -> None:
    try:
        stream.close()
    except OSError:
        return  # the pipe of an ended process: what was still buffered has no reader


_WORKER = _Worker()
start_renderer = _WORKER.start  # ahead of the first `render`, beside other work
atexit.register(_WORKER.close)
