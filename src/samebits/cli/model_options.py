"""Options that every command on a model takes, and the loading behind them.

A command is written with what is its own; `model_command` and `sampling_command` add the rest to its signature,
where the command line finds it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any

import click
from click.core import ParameterSource

from samebits.cli import flags
from samebits.cli.loading_line import LoadingLine
from samebits.core.errors import BadInput, Unavailable
from samebits.core.sampling_defaults import MODEL
from samebits.engine.sampling import SamplingParams
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


def _setting(kind: Any, default: Any, flag: str, text: str, **limits: Any) -> tuple[Any, Any]:
    """An option that a SAMEBITS_ variable sets too."""
    variable = "SAMEBITS_" + flag.lstrip("-").replace("-", "_").upper()
    return _option(kind, default, flag, text, envvar=variable, **limits)


def _engine(kind: Any, default: Any, flag: str, text: str, **limits: Any) -> tuple[Any, Any]:
    """A setting of the engine, in a panel of its own."""
    return _setting(kind, default, flag, text, panel="Engine", **limits)


MODEL_OPTIONS = {
    "model": _setting(
        str, DEFAULT_MODEL, "--model", "The model: a short name, a path, hf:owner/repo or an address.", also=("-m",)
    ),
    "backend": _setting(
        str | None,
        None,
        "--backend",
        "The backend to run on, by name or as module:Class; the native CPU kernels if absent.",
    ),
    "numerics": _setting(
        str | None, None, "--numerics", "The tier: fast, invariant or portable; the strongest if absent."
    ),
    "threads": _setting(
        int | None,
        None,
        "--threads",
        "Use at most this many host threads, fewer while that is faster; all processors if absent.",
        also=("-t",),
        min=1,
    ),
    "gpu_layers": _option(
        str | None,
        None,
        "-ngl",
        "Run all layers on the first GPU backend (all) or none (0). Layers cannot be split between devices.",
        also=("--gpu-layers",),
        metavar="all|0",
    ),
    "context_len": _setting(
        int,
        2048,
        "--context-len",
        "The most tokens that a sequence may have.",
        also=("-c", "--ctx-size", "--max-model-len"),
        min=1,
    ),
    "k_format": _setting(str, "f16", "--k-format", "The format of cached keys."),
    "v_format": _setting(str, "f16", "--v-format", "The format of cached values."),
    "max_sequences": _engine(
        int, 32, "--max-sequences", "Requests that run at once; others wait in the queue.", min=1, max=4096
    ),
    "num_pages": _engine(
        int | None, None, "--num-pages", "Pages of KV memory; enough for four whole contexts if absent.", min=2
    ),
    "page_size": _engine(int, 16, "--page-size", "Tokens per page of KV memory.", min=1, max=4096),
    "max_batch_tokens": _engine(
        int | None,
        None,
        "--max-batch-tokens",
        "The number of tokens that a step aims at; if absent, 512, and 2048 on a GPU.",
        min=1,
        max=1 << 20,
    ),
    "prefill_budget": _engine(
        str,
        "dynamic",
        "--prefill-budget",
        "Prompt tokens that a step may take while answers are under way: a number, dynamic or off.",
    ),
    "speculate": _engine(
        str | None,
        None,
        "--speculate",
        "Guess tokens and verify several at a time, which changes no bit: ngram, or draft:MODEL.",
    ),
    "sampling_defaults": _setting(
        str,
        MODEL,
        "--sampling-defaults",
        "Draw with the model's own temperature and filters (model), or from its probabilities as they are (neutral), "
        "where a request does not say.",
    ),
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


def _with_options(
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
    chosen["backend"] = backend_for_layers(chosen.pop("gpu_layers"), chosen["backend"], is_default)
    return chosen


def backend_for_layers(gpu_layers: str | None, backend: str | None, is_default: bool = False) -> str | None:
    """Return the backend that -ngl means beside --backend. Raise BadInput if the two disagree.

    is_default  the backend comes from SAMEBITS_BACKEND, over which -ngl takes precedence
    """
    if gpu_layers is None:
        return backend
    if gpu_layers not in ("0", "all"):
        raise BadInput("model", "-ngl", repr(gpu_layers), "0 or all: layers cannot be split between devices yet")
    from samebits.backends.discovery import ON_GPU, get

    if backend is not None:
        agrees = (backend in ON_GPU) == (gpu_layers == "all")
        if not agrees and not is_default:
            raise BadInput("model", "-ngl", gpu_layers, f"to agree with --backend {backend}")
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

    return _with_options(command, MODEL_OPTIONS, {"load"}, call)


def sampling_command(command: Callable[..., None]) -> Callable[..., None]:
    """Gives `command(load=..., params=...)` the model options and the sampling options."""

    def call(**given: Any) -> None:
        chosen = _pop_settings(given, MODEL_OPTIONS)
        wishes = {name: given.pop(name) for name in SAMPLING_OPTIONS}
        params = SamplingParams(**{**wishes, "stop": tuple(wishes["stop"])}, hash_logits=True).with_seed()
        command(**given, load=_loader(chosen), params=params)

    return _with_options(command, {**SAMPLING_OPTIONS, **MODEL_OPTIONS}, {"load", "params"}, call)


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

    return _with_options(command, options, {"settings"}, call)


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


def prefill_setting(text: str) -> int | str:
    """What --prefill-budget says: a number, or a word."""
    return int(text) if text.isdecimal() else text


def llm_options(*, prefill_budget: str, **settings: Any) -> dict[str, Any]:
    """The options as `LLM` takes them."""
    return {**settings, "prefill_budget": prefill_setting(prefill_budget)}


def make_llm(model: str, **settings: Any) -> LLM:
    """The model as the options ask for it."""
    from samebits.api.llm import LLM

    return LLM(model, **llm_options(**settings))


def load_model(model: str, **settings: Any) -> LLM:
    """The model, fetched if it is one we can fetch; progress and its tier go to standard error."""
    if not is_at_hand(model):
        from rich.console import Console

        with progress_bar(Console(stderr=True)) as progress:
            fetch_model(model, progress)
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
