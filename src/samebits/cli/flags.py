"""How a command states its parameters, in the signature of its function, and how click reads them from there.

    def devices(as_json: bool = flags.Option(False, "--json", help="Print JSON for programs.")) -> None:
    def score(text: Annotated[str | None, flags.Argument(help="The text to score.")] = None) -> None:

Either way: the type says what is read, the default whether it must be given. click alone is imported for it, since the
first token waits for the command line to be read.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import click
from click import Context, echo
from click.shell_completion import CompletionItem

from samebits.core.errors import BadInput, refusal

__all__ = ["Argument", "Command", "Context", "Group", "Option", "ShownArgument", "echo", "make_command"]
SETTINGS: dict[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 120}
HUGE = 2**53  # a bound that no one reads, and no one meets
METAVARS = {"whole number": "N", "number": "X", "path": "FILE"}


Complete = Callable[[click.Context, str], list[CompletionItem]]


@dataclass(frozen=True)
class Stated:
    """A parameter as a signature states it; `given` is its default and its names, within Annotated its names alone."""

    is_argument: bool
    given: tuple[Any, ...]
    help: str
    envvar: str | None
    low: float | None
    high: float | None
    metavar: str | None
    panel: str | None
    complete: Complete | None = None


def Option(
    *given: Any,
    help: str,
    envvar: str | None = None,
    min: float | None = None,
    max: float | None = None,
    metavar: str | None = None,
    panel: str | None = None,
) -> Any:
    """An option: its default, unless within Annotated, then its names, or none where its parameter's name serves."""
    return Stated(False, given, help, envvar, min, max, metavar, panel)


def Argument(*given: Any, help: str, metavar: str | None = None, complete: Complete | None = None) -> Any:
    """An argument: its default, unless within Annotated; `...` for one that must be given.

    complete  returns what a shell may offer in its place, from the context and the word that is being typed
    """
    return Stated(True, given, help, None, None, None, metavar, None, complete)


def _shown(value: Any) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


class Number(click.ParamType):
    """A whole number or any, within bounds where there are some."""

    def __init__(self, kind: type[int] | type[float], low: float | None, high: float | None) -> None:
        self.name = "whole number" if kind is int else "number"
        self._kind, self._low, self._high = kind, low, high
        most = "" if high is None or high >= HUGE else f" .. {_shown(high)}"
        self.bounds = "" if low is None else f"{_shown(low)}{most or ' or more'}"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            number = self._kind(value)
        except ValueError:
            number = None
        is_low = number is not None and self._low is not None and not number >= self._low
        is_high = number is not None and self._high is not None and not number <= self._high
        if number is None or is_low or is_high:
            bounds = f"{' ' if '..' in self.bounds else ', '}{self.bounds}" if self.bounds else ""
            name = param.opts[0] if isinstance(param, click.Option) else param.human_readable_name if param else "value"
            raise click.UsageError(refusal(name, repr(value), f"a {self.name}{bounds}"), ctx)
        return number


class ShownOption(click.Option):
    """An option in a panel of the help, or among the first where `panel` is None."""

    panel: str | None = None

    def get_error_hint(self, ctx: click.Context | None) -> str:
        return f"'{self.opts[0]}'"  # its first name; others are accepted for people who know them

    def get_help_record(self, ctx: click.Context) -> tuple[str, str]:
        names = " / ".join(", ".join(part) for part in (self.opts, self.secondary_opts) if part)
        value = "" if self.is_flag else " " + (self.metavar or METAVARS.get(self.type.name, self.type.name.upper()))
        default = self.opts[0] if self.default else self.secondary_opts[0] if self.secondary_opts else ""
        notes = [f"default {default if self.is_flag else _shown(self.default)}"] if self.show_default else []
        notes += [self.type.bounds] if isinstance(self.type, Number) and self.type.bounds else []
        notes += [f"${self.envvar}"] if isinstance(self.envvar, str) else []
        notes += ["required"] if self.required else []
        shown = "; ".join(notes)
        return names + value, f"{self.help} [{shown}]" if shown else str(self.help)


class ShownArgument(click.Argument):
    """An argument that the help describes."""

    text = ""
    complete: Complete | None = None

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        return self.complete(ctx, incomplete) if self.complete else super().shell_complete(ctx, incomplete)


class Command(click.Command):
    """A command whose help lists its arguments, its options, and then one panel after another."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for parameter in self.get_params(ctx):
            if isinstance(parameter, ShownArgument):
                sections["Arguments"].append((parameter.make_metavar(ctx), parameter.text))
            elif (record := parameter.get_help_record(ctx)) is not None:
                sections.setdefault(getattr(parameter, "panel", None) or "Options", []).append(record)
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


class Group(click.Group):
    """Commands under one name; they are listed in the order in which they were added."""

    def __init__(self, name: str | None = None, *, help: str) -> None:
        version = version_option()
        super().__init__(name, help=help, no_args_is_help=True, params=[version], context_settings=SETTINGS)

    def add(self, name: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
        """Adds the decorated function as a command of this name."""

        def added(function: Callable[..., None]) -> Callable[..., None]:
            self.add_command(make_command(function, name))
            return function

        return added

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


def version_option() -> click.Option:
    """-V and --version, which end the command."""

    def show(ctx: click.Context, _: click.Parameter, is_given: bool) -> None:
        from samebits.cli.main import version_line

        if is_given and not ctx.resilient_parsing:
            click.echo(version_line())
            ctx.exit()

    names = ["-V", "--version"]
    return click.Option(
        names, is_flag=True, is_eager=True, expose_value=False, callback=show, help="Show the version and exit."
    )


def make_command(function: Callable[..., None], name: str, settings: dict[str, Any] | None = None) -> Command:
    """The function as a command: parameters from its signature, help from its docstring."""
    parameters: list[click.Parameter] = []
    lists, context_name = [], None
    for parameter in inspect.signature(function, eval_str=True).parameters.values():
        if parameter.annotation is click.Context:
            context_name = parameter.name
            continue
        stated, kind, default = _read(function, parameter)
        is_list = get_origin(kind) is list
        lists += [parameter.name] if is_list else []
        make = _argument if stated.is_argument else _option
        parameters.append(make(parameter.name, stated, get_args(kind)[0] if is_list else kind, default, is_list))

    def call(**values: Any) -> None:
        given: dict[str, Any] = {n: list(v) if n in lists else v for n, v in values.items()}
        function(**given, **({context_name: click.get_current_context()} if context_name else {}))

    return Command(
        name,
        context_settings={**SETTINGS, **(settings or {})},
        callback=call,
        params=[*parameters, version_option()],
        help=inspect.getdoc(function),
    )


def _read(function: Callable[..., None], parameter: inspect.Parameter) -> tuple[Stated, Any, Any]:
    """(what is stated, the type without None, the default or ...)."""
    kind, stated, default = parameter.annotation, parameter.default, parameter.default
    if get_origin(kind) is Annotated:
        kind, stated = get_args(kind)[:2]
        default = ... if default is inspect.Parameter.empty else default
    elif isinstance(stated, Stated):
        default = stated.given[0] if stated.given else ...
        stated = Stated(**{**vars(stated), "given": stated.given[1:]})
    if not isinstance(stated, Stated):
        where = f"{function.__module__}.{function.__name__}"
        raise BadInput(where, parameter.name, type(stated).__name__, "flags.Option or flags.Argument")
    if get_origin(kind) in (Union, UnionType):
        kind = next(part for part in get_args(kind) if part is not NoneType)
    return stated, kind, default


def _argument(name: str, stated: Stated, kind: Any, default: Any, is_list: bool) -> click.Argument:
    settings: dict[str, Any] = {"required": True} if default is ... else {"required": False, "default": default}
    made = ShownArgument(
        [name], type=_type(kind, stated), metavar=stated.metavar, nargs=-1 if is_list else 1, **settings
    )
    made.complete = stated.complete
    made.text = stated.help
    return made


def _option(name: str, stated: Stated, kind: Any, default: Any, is_list: bool) -> click.Option:
    names = [*stated.given] or ["--" + name.replace("_", "-")]
    settings: dict[str, Any] = {"required": True} if default is ... else {"default": default}
    if kind is bool:
        settings["is_flag"] = True
    else:
        settings |= {"type": _type(kind, stated), "multiple": is_list, "metavar": stated.metavar}
    is_pair = any("/" in text for text in names)
    has_default = is_pair or (default not in (None, ..., "", (), []) and default is not False)
    made = ShownOption(
        [name, *names],
        help=stated.help,
        envvar=stated.envvar,
        show_default=has_default,
        **settings,
    )
    made.panel = stated.panel
    return made


def _type(kind: Any, stated: Stated) -> click.ParamType:
    """What click reads a value of this type with."""
    if kind is Path:
        return click.Path(path_type=Path)
    return click.STRING if kind is str else Number(kind, stated.low, stated.high)
