"""What was said, and its file: JSON Lines, the settings first and then a message per line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from samebits.api.requests import one_params
from samebits.core.errors import BadInput
from samebits.core.files import write_atomically
from samebits.engine.sampling import SamplingParams

MAX_FILE_BYTES = 64 << 20
ROLES = ("system", "user", "assistant")
Message = dict[str, str]


@dataclass
class Conversation:
    """Messages in order; a system message can only be the first."""

    messages: list[Message] = field(default_factory=list)

    @property
    def system(self) -> str | None:
        has_one = bool(self.messages) and self.messages[0]["role"] == "system"
        return self.messages[0]["content"] if has_one else None

    def set_system(self, text: str | None) -> None:
        """Another system message in place of the one there is; None for none."""
        rest = self.messages[1:] if self.system is not None else self.messages
        self.messages = ([{"role": "system", "content": text}] if text else []) + rest

    def forget(self) -> None:
        """Drops all that was said; the system message stays."""
        self.messages = self.messages[:1] if self.system is not None else []

    def with_turn(self, text: str) -> list[Message]:
        """The messages and one more of the user's, which is not kept."""
        return [*self.messages, {"role": "user", "content": text}]

    def add_turn(self, text: str, answer: str) -> None:
        """What the user said, and the answer to it."""
        self.messages = [*self.with_turn(text), {"role": "assistant", "content": answer}]

    def take_turn(self) -> tuple[str, str]:
        """Remove the last turn and return it: the user's message and the answer. Raise BadInput if there is none."""
        if len(self.messages) < 2 or self.messages[-1]["role"] != "assistant":
            raise BadInput("chat", "conversation", "without an answer", "one with an answer")
        user, answer = self.messages[-2:]
        self.messages = self.messages[:-2]
        return user["content"], answer["content"]

    @property
    def num_turns(self) -> int:
        return sum(message["role"] == "user" for message in self.messages)


def save(path: Path, conversation: Conversation, model: str, params: SamplingParams) -> None:
    """Writes the file, whole or not at all."""
    sampling = asdict(params)
    for name in ("shown_ids", "receipt"):  # what of its vocabulary a model shows, and what is noted of it
        del sampling[name]
    settings = {"settings": {"model": model, "sampling": sampling}}
    lines = [json.dumps(line, ensure_ascii=False) for line in (settings, *conversation.messages)]
    write_atomically(path, "\n".join(lines) + "\n")


def load(path: Path) -> tuple[Conversation, dict[str, Any]]:
    """(the conversation, its settings: "model" and "sampling"); BadInput for a file that holds none."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise BadInput(str(path), "file", error.strerror or error, "a conversation that was saved") from None
    if len(data) > MAX_FILE_BYTES:
        raise BadInput(str(path), "file", f"more than {MAX_FILE_BYTES} bytes", "a conversation that was saved")
    settings: dict[str, Any] = {}
    messages: list[Message] = []
    for number, line in enumerate(data.splitlines(), 1):
        found = _object(path, number, line)
        if number == 1 and "settings" in found:
            settings = _settings(path, found["settings"])
        else:
            messages.append(_message(path, number, found, not messages))
    return Conversation(messages), settings


def _object(path: Path, number: int, line: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise BadInput("load", f"{path.name}, line {number}", repr(line[:60]), "a JSON object")
    return found


def _settings(path: Path, found: Any) -> dict[str, Any]:
    if not isinstance(found, dict) or not isinstance(found.get("sampling", {}), dict):
        raise BadInput("load", f"{path.name}, line 1", "other settings", 'settings with "model" and "sampling"')
    return found


def _message(path: Path, number: int, found: Mapping[str, Any], is_first: bool) -> Message:
    role, content = found.get("role"), found.get("content")
    if role not in ROLES or not isinstance(content, str) or (role == "system" and not is_first):
        needed = f"a message: a role among {', '.join(ROLES)}, system only first, and content that is text"
        raise BadInput("load", f"{path.name}, line {number}", repr(dict(found))[:80], needed)
    return {"role": role, "content": content}


def sampling_of(settings: Mapping[str, Any], usual: SamplingParams) -> SamplingParams:
    """The sampling that a conversation was saved with, or the usual one where it says nothing of it."""
    saved = settings.get("sampling")
    return usual if saved is None else one_params("load", saved).with_seed()
