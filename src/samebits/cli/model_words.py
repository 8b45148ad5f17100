"""Words of a command line that may name a model: `chat MODEL`, `serve MODEL`, `run MODEL MESSAGE`."""

from __future__ import annotations

from pathlib import Path

import click
from click.core import ParameterSource

from samebits.core.errors import BadInput, NotFound
from samebits.loaders.cache import MODEL_ENDINGS
from samebits.loaders.catalog import MODELS


def names_a_model(word: str) -> bool:
    """Return whether the word is a short name, hf:..., a model file, or a folder with a config.json."""
    is_one_word = not any(c.isspace() for c in word)
    if word in MODELS or (is_one_word and word.startswith("hf:")):
        return True
    if is_one_word and word.endswith(MODEL_ENDINGS):  # a file that does not exist is an error, not a message
        return True
    try:
        path = Path(word).expanduser()
        return (path.is_file() and path.name.endswith(MODEL_ENDINGS)) or (path / "config.json").is_file()
    except (OSError, ValueError, RuntimeError):  # a message, too long or too odd for a path
        return False


def model_and_message(first: str | None, second: str | None) -> tuple[str | None, str | None]:
    """Return (model, message) of `chat [MODEL] [MESSAGE]`: one word alone is a model only if it names one.

    Raise NotFound if the first of two words can be no model: a message was probably not quoted.
    """
    if first is None:
        return None, second
    if second is not None:
        if not names_a_model(first) and "/" not in first and not _exists(first):
            hint = "put a message of several words in quotes; `samebits list --names` shows short names of models"
            raise NotFound("chat", "MODEL", f"no model {first!r}; {hint}")
        return first, second
    return (first, None) if names_a_model(first) else (None, first)


def _exists(word: str) -> bool:
    try:
        return Path(word).exists()
    except (OSError, ValueError):
        return False


def model_named_once(command: str, word: str | None) -> str:
    """Return the model: the argument, or --model or its variable. Raise BadInput if both are given on the line."""
    context = click.get_current_context()
    if word is None:
        return str(context.params["model"])
    if context.get_parameter_source("model") is ParameterSource.COMMANDLINE:
        raise BadInput(command, "MODEL and --model", "both", "one of them")
    return word


def only_message(command: str, message: str | None, prompt: str | None, argument: str = "MESSAGE") -> str | None:
    """Return the message: the argument or --prompt, or None. Raise BadInput for both."""
    if message is not None and prompt is not None:
        raise BadInput(command, f"{argument} and --prompt", "both", "one of them")
    return prompt if message is None else message
