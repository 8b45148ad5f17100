"""The table of commands, and the command line that imports a command when it is called.

The first token must not wait for other commands' imports, and neither must the help: its summaries stand in the table.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from typing import Any

import click
from click.shell_completion import CompletionItem

from samebits.cli.flags import Group, make_command
from samebits.core.collector import collector_paused

HELP = "LLM inference with the same bits under any load."
EPILOG = "Start with: samebits run smollm2"
MAX_SUMMARY_CHARS = 56  # the help has 80 columns


@dataclass(frozen=True)
class Entry:
    """A command: its module in samebits.cli, its function there, and the line that `samebits --help` shows.

    A function named "app" holds commands of its own.
    """

    module: str
    function: str
    summary: str
    aliases: tuple[str, ...] = ()


SECTIONS: dict[str, dict[str, Entry]] = {
    "Use a model": {
        "run": Entry("chat.command", "run", "Chat with a model, or answer one message"),
        "chat": Entry("chat.command", "chat", "Chat with the default model, or with another one"),
        "generate": Entry("generate", "generate", "Continue a text"),
        "score": Entry("score", "score", "Print the log-likelihood of a text, token by token"),
        "serve": Entry("serve", "serve", "Serve a model over HTTP: OpenAI's API and a page"),
        "ps": Entry("ps", "ps", "List the servers that run on this machine"),
    },
    "Manage models": {
        "pull": Entry("pull", "pull", "Download a model"),
        "list": Entry("pull", "list_models", "List the downloaded models", ("ls", "models")),
        "inspect": Entry("inspect", "inspect", "Show what a model is and the memory it needs", ("show",)),
        "remove": Entry("pull", "remove", "Delete a downloaded model", ("rm",)),
        "convert": Entry("convert", "convert", "Convert a Hugging Face folder to a GGUF file"),
        "quantize": Entry("convert", "quantize", "Write a model with weights in another format"),
    },
    "Check answers": {
        "replay": Entry("replay", "replay", "Make answers again from receipts and compare every bit"),
        "audit": Entry("audit", "audit", "Replay a sample of a folder of receipts"),
    },
    "Measure and explain": {
        "devices": Entry("devices", "devices", "List the backends, and why some cannot run here"),
        "explain": Entry("explain", "explain", "Show which kernel runs each node of a model, and why"),
        "bench": Entry("bench", "app", "Measure models, ops and servers"),
        "warm": Entry("warm", "warm", "Compile a model's GPU kernels before its first start"),
        "tour": Entry("tour", "tour", "Show what neighbours do to a row's bits, and the devices"),
    },
    "Port a backend": {
        "verify": Entry("verify", "verify", "Prove that a backend computes what is defined"),
        "support": Entry("support", "support", "Show which op runs in which format on which backend"),
        "golden": Entry("golden", "app", "Make golden artifacts, and check a backend with them"),
        "compare": Entry("compare", "compare", "Compare two sets of artifacts"),
        "trace": Entry("trace", "trace", "Run a prompt op by op and print every tensor"),
        "diff": Entry("diff", "diff", "Find the first tensor in which two backends differ"),
        "shader": Entry("shader", "shader", "Print the shaders of a webgpu kernel"),
    },
    "More": {
        "completions": Entry("completions", "completions", "Print a completion script for your shell"),
        "help": Entry("help", "show_help", "Show the help of a command"),
    },
}
COMMANDS = {name: entry for section in SECTIONS.values() for name, entry in section.items()}
ALIASES = {alias: name for name, entry in COMMANDS.items() for alias in entry.aliases}


class CommandLine(Group):
    """The command `samebits`, which imports the module of a command when that command is asked for."""

    def __init__(self) -> None:
        super().__init__("samebits", help=HELP)
        self.epilog = EPILOG

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        name = ALIASES.get(cmd_name, cmd_name)
        if name in COMMANDS and name not in self.commands:
            self.add_command(load_command(name), name)
        return self.commands.get(name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return (name, command, remaining arguments). Raise UsageError with a similar name for an unknown command."""
        word = args[0]
        if not ctx.resilient_parsing and not word.startswith("-") and self.get_command(ctx, word) is None:
            near = get_close_matches(word, [*COMMANDS, *ALIASES], n=1)
            ctx.fail(f"no such command {word!r}" + (f" (did you mean {near[0]!r}?)" if near else ""))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, entries in SECTIONS.items():
            rows = [(", ".join((name, *entry.aliases)), entry.summary) for name, entry in entries.items()]
            with formatter.section(title):
                formatter.write_dl(rows)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete a command's name from the table; the options of this group come from click."""
        names = [CompletionItem(n, help=e.summary) for n, e in COMMANDS.items() if n.startswith(incomplete)]
        return names + click.Command.shell_complete(self, ctx, incomplete)


def load_command(name: str) -> click.Command:
    """Import the module of a command and return the command."""
    entry = COMMANDS[name]
    with collector_paused():  # imports drop nothing
        module = import_module(f"samebits.cli.{entry.module}")
    found: Any = getattr(module, entry.function)
    if entry.function != "app":
        found = make_command(found, name, getattr(module, "CONTEXT_SETTINGS", None))
    found.short_help = entry.summary
    return found


def whole_command_line() -> CommandLine:
    """Return the command line with every command imported."""
    app = CommandLine()
    for name in COMMANDS:
        app.add_command(load_command(name), name)
    return app
