"""Options that every command on a model takes, and the loading behind them.

A command is written with what is its own; `model_command` and `sampling_command` add the rest to its signature,
where the command line finds it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import NoneType, SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any

import click
from click.core import ParameterSource

from samebits.cli import flags
from samebits.cli.loading_line import LoadingLine
from samebits.core.errors import BadInput, Unavailable
from samebits.core.stated import Setting, defaults_of, settings_of
from samebits.engine.sampling import SamplingParams
from samebits.engine.settings import MAX_SIZE, EngineSettings, settings_from, stated_settings
from samebits.loaders.cache import cached_path, pulled_path
from samebits.loaders.catalog import DEFAULT_MODEL
from samebits.loaders.obtain import is_at_hand, obtain

if TYPE_CHECKING:  # imported when a model is loaded, and where something is fetched
    from rich.console import Console
    from rich.progress import Progress

    from samebits.api.llm import LLM

Loader = Callable[..., "LLM"]  # of the options, or load(name) for another model with the same options
MAX_SHOWN = 5  # fallbacks that are printed one by one


def _option(
    kind: Any, default: Any, flag: str, text: str, also: tuple[str, ...] = (), **limits: Any
) -> tuple[Any, Any]:
    """Return an option. `also` are its names in llama.cpp and vLLM."""
    return Annotated[kind, flags.Option(flag, *also, help=text, **limits)], default


def stated_options(kind: Any) -> dict[str, tuple[Any, Any]]:
    """Return an option for each field of a dataclass of settings that has a flag."""
    default = defaults_of(kind)
    return {name: _derived(kinds, s, default[name]) for name, (kinds, s) in settings_of(kind).items() if s.flags}


def _derived(kinds: tuple[Any, ...], setting: Setting, default: Any) -> tuple[Any, Any]:
    kind = next((k for k in (str, float, int) if k in kinds), str)  # a text is read by the field itself
    high = None if setting.high == MAX_SIZE else setting.high
    bounds = {"min": setting.low, "max": high, "envvar": setting.variable, "panel": setting.panel}
    flag, *also = setting.flags
    is_optional = NoneType in kinds
    return _option(kind | None if is_optional else kind, default, flag, setting.help, also=tuple(also), **bounds)


MODEL_OPTIONS = {
    "model": _option(
        str,
        DEFAULT_MODEL,
        "--model",
        "The model: a short name, a path, hf:owner/repo or an address.",
        also=("-m",),
        envvar="SAMEBITS_MODEL",
    ),
    "gpu_layers": _option(
        str | None,
        None,
        "-ngl",
        "Run all layers on the first GPU backend (all, or a number of at least the model's layers) or none (0).",
        also=("--gpu-layers",),
        metavar="all|0|N",
    ),
    **stated_options(EngineSettings),
}
SAMPLING_OPTIONS = {
    "max_tokens": _option(int, 256, "--max-tokens", "The most tokens in an answer.", also=("-n", "--n-predict"), min=1),
    "temperature": _option(
        float | None,
        None,
        "--temperature",
        "How freely tokens are drawn; 0 always takes the likeliest one. The model's own if absent.",
        also=("--temp",),
        min=0,
    ),
    "top_k": _option(
        int | None,
        None,
        "--top-k",
        "Draw from this many of the likeliest tokens; 0 turns it off. The model's own if absent.",
        min=0,
    ),
    "top_p": _option(
        float | None,
        None,
        "--top-p",
        "Draw from the likeliest tokens that hold this share of the probability; 1 turns it off. The model's own if "
        "absent.",
    ),
    "min_p": _option(
        float | None,
        None,
        "--min-p",
        "Drop tokens below this share of the likeliest one's probability; 0 turns it off. The model's own if absent.",
    ),
    "repetition_penalty": _option(
        float | None,
        None,
        "--repetition-penalty",
        "Make tokens that have occurred less likely; 1 turns it off. The model's own if absent.",
    ),
    "seed": _option(
        int | None, None, "--seed", "The seed of the draws; chosen at random and reported if absent.", min=0
    ),
    "stop": _option(list[str], (), "--stop", "A text that ends the answer; it may be given several times."),
    "logprobs": _option(
        int | None,
        None,
        "--logprobs",
        "With --json, report this many of the likeliest tokens at every position.",
        min=0,
    ),
    "n": _option(int, 1, "--samples", "The number of answers.", min=1),
}


def with_options(
    command: Callable[..., None], options: dict[str, tuple[Any, Any]], replaced: set[str], call: Callable[..., None]
) -> Callable[..., None]:
    """`call` under the command's name and text, its signature the command's own parameters plus the options."""
    own = [p for p in inspect.signature(command, eval_str=True).parameters.values() if p.name not in replaced]
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, (annotation, default) in options.items()
    ]
    call.__name__, call.__doc__ = command.__name__, command.__doc__
    call.__signature__ = inspect.Signature([*own, *added])  # type: ignore[attr-defined]
    call.__annotations__ = {p.name: p.annotation for p in (*own, *added)}
    return call


def _pop_settings(given: dict[str, Any], options: Iterable[str]) -> dict[str, Any]:
    """Remove the options from `given` and return them as settings of the engine: -ngl has become a backend."""
    chosen = {name: given.pop(name) for name in options}
    is_default = click.get_current_context().get_parameter_source("backend") is ParameterSource.ENVIRONMENT
    gpu_layers = chosen.pop("gpu_layers", None)
    if gpu_layers is not None:
        from samebits.cli.gpu_layers import all_or_none
        from samebits.cli.model_words import names_a_model

        words = (word for word in given.values() if isinstance(word, str))
        named = chosen["model"] if "model" in chosen else given["model"]  # an argument of its own in some commands
        gpu_layers = all_or_none(gpu_layers, next(filter(names_a_model, words), named))
    chosen["backend"] = backend_for_layers(gpu_layers, chosen["backend"], is_default)
    return chosen


def backend_for_layers(gpu_layers: str | None, backend: str | None, is_default: bool = False) -> str | None:
    """Return the backend that -ngl, "0" or "all", means beside --backend. Raise BadInput if the two disagree.

    is_default  the backend comes from SAMEBITS_BACKEND, over which -ngl takes precedence
    """
    if gpu_layers is None:
        return backend
    from samebits.backends.discovery import ON_GPU, get

    if backend is not None:
        agrees = (backend in ON_GPU) == (gpu_layers == "all")
        if not agrees and not is_default:
            raise BadInput("model", "-ngl", gpu_layers, f"in agreement with --backend {backend}")
        if agrees:
            return backend
    if gpu_layers == "0":
        return None
    found = [get(name) for name in ON_GPU]
    here = next((f.name for f in found if f.backend is not None), None)
    if here is None:
        raise Unavailable("-ngl all: no GPU backend can run here; samebits devices shows the reasons")
    return here


def model_command(command: Callable[..., None]) -> Callable[..., None]:
    """Gives `command(load=...)` the model options; load() fetches, loads and announces the model."""

    def call(**given: Any) -> None:
        command(load=_loader(_pop_settings(given, MODEL_OPTIONS)), **given)

    return with_options(command, MODEL_OPTIONS, {"load"}, call)


def sampling_command(command: Callable[..., None]) -> Callable[..., None]:
    """Gives `command(load=..., params=...)` the model options and the sampling options."""

    def call(**given: Any) -> None:
        chosen = _pop_settings(given, MODEL_OPTIONS)
        wishes = {name: given.pop(name) for name in SAMPLING_OPTIONS}
        params = SamplingParams(**{**wishes, "stop": tuple(wishes["stop"])}, hash_logits=True).with_seed()
        command(**given, load=_loader(chosen), params=params)

    return with_options(command, {**SAMPLING_OPTIONS, **MODEL_OPTIONS}, {"load", "params"}, call)


def _loader(chosen: dict[str, Any]) -> Loader:
    def load(model: str | None = None) -> LLM:
        return load_model(**{**chosen, "model": model or chosen["model"]})

    return load


def given_wishes(params: SamplingParams) -> dict[str, Any]:
    """Those of a command's sampling options that its caller stated, by their names in SamplingParams."""
    source = click.get_current_context().get_parameter_source
    stated = (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)
    return {name: getattr(params, name) for name in SAMPLING_OPTIONS if source(name) in stated}


def settings_command(command: Callable[..., None], without: Sequence[str] = ()) -> Callable[..., None]:
    """Gives `command(settings=...)` the model options, by name; all but some."""
    options = {name: option for name, option in MODEL_OPTIONS.items() if name not in without}

    def call(**given: Any) -> None:
        command(settings=SimpleNamespace(**_pop_settings(given, options)), **given)

    return with_options(command, options, {"settings"}, call)


def progress_bar(console: Console) -> Progress:
    """Bars on standard error where someone is looking."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def fetch_model(model: str, progress: Progress) -> None:
    """Fetches a known model that is missing or damaged; a file is checked once, and a line says so."""
    if is_at_hand(model):
        return
    cached = cached_path(model)
    if cached is not None and (pulled := pulled_path(cached)) is not None:
        progress.console.print(f"checking the SHA-256 of {pulled.name}, once", style="dim", highlight=False)
    bar = progress.add_task(f"fetching {model}", total=None)
    obtain(model, lambda what, done, total: progress.update(bar, description=what, completed=done, total=total))


def fetch_if_missing(model: str) -> None:
    """Fetch a known model that is not here yet, with bars on standard error."""
    if not is_at_hand(model):
        from rich.console import Console

        with progress_bar(Console(stderr=True)) as progress:
            fetch_model(model, progress)


def llm_options(**settings: Any) -> dict[str, Any]:
    """Return the options as `LLM` takes them: texts of the command line read, where a field has its own form."""
    stated = stated_settings()
    parsers = {name: setting.parse for name, (_, setting) in stated.items() if setting.parse is not None}
    return {name: parsers[name](v) if name in parsers else v for name, v in settings.items()}


def engine_settings(options: SimpleNamespace) -> EngineSettings:
    """Return the settings of the engine that a command's options mean; those it does not take have their defaults."""
    known = stated_settings()
    return settings_from(llm_options(**{name: v for name, v in vars(options).items() if name in known}))


def make_llm(model: str, **settings: Any) -> LLM:
    """The model as the options ask for it."""
    from samebits.api.llm import LLM

    return LLM(model, **llm_options(**settings))


def load_model(model: str, **settings: Any) -> LLM:
    """The model, fetched if it is one we can fetch; progress and its tier go to standard error."""
    fetch_if_missing(model)
    with LoadingLine() as line:
        llm = make_llm(model, **settings, progress=line.show, compile_progress=line.show_compiling)
    dim = click.style(f"{Path(model).name} on {llm.runner.backend.name}, numerics {llm.numerics}", dim=True)
    click.echo(dim, err=True)
    fallbacks = llm.engine.fallbacks
    for reason in fallbacks[:MAX_SHOWN]:
        click.echo(f"{click.style('fallback', fg='yellow')} {reason}", err=True)
    if len(fallbacks) > MAX_SHOWN:
        click.echo(f"... and {len(fallbacks) - MAX_SHOWN} more: see samebits explain", err=True)
    return llm
