"""Every help line is a phrase that stands on its own, and says "per" where it means per."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click
import pytest

from samebits.cli.commands import COMMANDS, whole_command_line
from samebits.cli.flags import ShownArgument

LEAST_WORDS = 3
BEGINS_WITHOUT_NOUN = re.compile(r"(Of|That|For|In|From|So many|After|Only) ")
A_FOR_PER = re.compile(
    r"\b(tokens|bytes|requests|seconds|ms|us|object) an? (second|step|token|line|decode|prompt|position)\b"
)


def commands(found: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    yield path, found
    for name, child in getattr(found, "commands", {}).items():
        yield from commands(child, f"{path} {name}")


def lines() -> dict[str, str]:
    """Where a help text stands -> the text, of commands and of all their parameters."""
    found = {}
    for path, command in commands(whole_command_line(), "samebits"):
        found[path] = (command.help or "").split("\n\n")[0]
        for parameter in command.params:
            if parameter.name != "help":
                is_argument = isinstance(parameter, ShownArgument)
                found[f"{path} {parameter.name}"] = parameter.text if is_argument else getattr(parameter, "help", "")
    return found


LINES = lines()


def test_all_commands_are_read() -> None:
    assert len(LINES) > 100
    assert {f"samebits {name}" for name in COMMANDS} <= set(LINES)


@pytest.mark.parametrize("where", ["samebits serve max_body_bytes", "samebits bench schedule cost"])
def test_settings_of_decorators_and_subcommands_are_among_them(where: str) -> None:
    assert LINES[where]


def test_help_lines_are_whole_phrases() -> None:
    bad = {where: text for where, text in LINES.items() if len(text.split()) < LEAST_WORDS or not text.endswith(".")}
    bad |= {where: text for where, text in LINES.items() if BEGINS_WITHOUT_NOUN.match(text)}
    assert bad == {}


def test_per_is_said_where_it_is_meant() -> None:
    assert {where: text for where, text in LINES.items() if A_FOR_PER.search(text)} == {}
