"""`samebits bench`: options of the measurements."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, track

from samebits.backends.discovery import default_name
from samebits.bench import plan
from samebits.bench.ceiling import usable_threads
from samebits.bench.model_run import bench_model
from samebits.bench.ops import chosen_cases, ops_page, print_ops, time_op
from samebits.bench.ours import Settings
from samebits.bench.peer import PACKAGES, Peer, open_peer
from samebits.bench.plot import model_page
from samebits.bench.report import print_run
from samebits.bench.schedule_plot import schedule_page
from samebits.bench.schedule_report import figures, print_outcomes, setting_lines
from samebits.bench.simulate import Room, cost_of, policy_of, simulate
from samebits.bench.workload import LONG_PROMPT, NUM_DECODERS, Arrival, Mixture, long_prompt, mixed, read_arrivals
from samebits.core.errors import BadInput, UnknownName
from samebits.core.tiers import Tier
from samebits.loaders import FileCheckpoint
from samebits.loaders.cache import DEFAULT_MODEL
from samebits.verify.report import environment, write_atomically, write_json

app = typer.Typer(help="Measure models and ops, against ceilings and peers in the same run.", no_args_is_help=True)

BACKEND = typer.Option(
    None, "--backend", envvar="SAMEBITS_BACKEND", help="Name, or module:Class; the native CPU kernels if absent."
)
NUMERICS = typer.Option(
    None, "--numerics", envvar="SAMEBITS_NUMERICS", help="fast, invariant or portable; the strongest if absent."
)
THREADS = typer.Option(
    None, "--threads", envvar="SAMEBITS_THREADS", help="All this process may use if absent.", min=1, max=1024
)
JSON_FILE = typer.Option(None, "--json", help="Write all figures here; - is standard output.")
PLOT_FILE = typer.Option(None, "--plot", help="Write a page to look at here.")
STANDARD_OUTPUT = Path("-")


def _check_files(json_file: Path | None, plot_file: Path | None) -> Console:
    """The console for people: standard error where standard output is for a program. BadInput for a bad target."""
    for name, file in (("--json", json_file), ("--plot", plot_file)):
        if file and file != STANDARD_OUTPUT and (file.is_dir() or not file.parent.is_dir()):
            raise BadInput("bench", name, file, "a file in a folder that exists")
    return Console(stderr=json_file == STANDARD_OUTPUT)


def _write_json(file: Path | None, content: dict[str, Any]) -> None:
    if file == STANDARD_OUTPUT:
        typer.echo(json.dumps(content, indent=1))
    elif file:
        write_json(file, content)


@app.command("model")
def model(
    model: str = typer.Argument(DEFAULT_MODEL, help="smollm2, a GGUF file, a safetensors folder, an address."),
    backend: str = BACKEND,
    numerics: str = NUMERICS,
    threads: int = THREADS,
    prompts: str = typer.Option("512,4096", "--prompts", help="Prefill of so many tokens."),
    depths: str = typer.Option("0,512,2048", "--depths", help="Decode of one sequence that holds so many tokens."),
    batches: str = typer.Option(
        "8,32", "--batches", help=f"Decode of so many sequences, {plan.SHORT_PROMPT} tokens in each."
    ),
    decode_tokens: int = typer.Option(32, "--decode-tokens", help="Steps of a decode.", min=1, max=4096),
    k_format: str = typer.Option("f16", "--k-format", envvar="SAMEBITS_K_FORMAT", help="Format of cached keys."),
    v_format: str = typer.Option("f16", "--v-format", envvar="SAMEBITS_V_FORMAT", help="Format of cached values."),
    repeats: int = typer.Option(5, "--repeats", help="Rounds of each row.", min=1, max=1000),
    against: list[str] = typer.Option(
        [], "--against", help="A peer, in turn with us: llama.cpp or transformers. May be given several times."
    ),
    peer_python: str = typer.Option(
        None, "--peer-python", envvar="SAMEBITS_PEER_PYTHON", help="Interpreter that has the peers; this one if absent."
    ),
    json_file: Path = JSON_FILE,
    plot_file: Path = PLOT_FILE,
) -> None:
    """Prefill and decode in tokens per second, load time, memory; beside a decode the share of the read ceiling.

    A ratio is taken round by round: ours, then each peer with its fastest KV format and attention for the row.
    """
    console = _check_files(json_file, plot_file)
    if unknown := set(against) - set(PACKAGES):
        raise UnknownName("peer", min(unknown), list(PACKAGES))
    rows = plan.rows_for(
        plan.numbers("--prompts", prompts, 1),
        plan.numbers("--depths", depths, 0),
        plan.numbers("--batches", batches, 1),
        decode_tokens,
    )
    where = backend or default_name()
    settings = Settings(model, where, threads or usable_threads(), numerics, k_format, v_format)

    def open_peers(checkpoint: FileCheckpoint) -> Iterable[Peer]:
        return map(partial(open_peer, python=peer_python, checkpoint=checkpoint, threads=settings.threads), against)

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    quiet = not console.is_terminal
    # drawn once a second: a bar that moves more often would show in the figures
    with Progress(*columns, console=console, transient=True, disable=quiet, refresh_per_second=1) as progress:
        bar = progress.add_task("opening", total=None)
        run = bench_model(
            settings,
            rows,
            repeats,
            open_peers,
            lambda what, done, total: progress.update(bar, description=what, completed=done, total=total),
        )
    print_run(console, run)
    _write_json(json_file, run.as_json())
    if plot_file:
        write_atomically(plot_file, model_page(run))


@app.command("ops")
def ops(
    backend: str = BACKEND,
    numerics: str = typer.Option("portable", "--numerics", envvar="SAMEBITS_NUMERICS", help="The tier of the kernels."),
    threads: int = THREADS,
    only: str = typer.Option(None, "--only", help="Cases whose label holds this, such as 'gemm/decode'."),
    json_file: Path = JSON_FILE,
    plot_file: Path = PLOT_FILE,
) -> None:
    """Bytes and operations per second of the ops that a step's time goes to, against a read of as many bytes."""
    console = _check_files(json_file, plot_file)
    tier, cases = Tier.parse(numerics), chosen_cases(only)
    settings = Settings("", backend or default_name(), threads or usable_threads())
    found = settings.device()
    timings = []
    for case in track(cases, "timing", console=console, transient=True, disable=not console.is_terminal):
        if found.backend and (timing := time_op(found.backend, case, tier, settings.threads)):
            timings.append(timing)
        else:
            console.print(f"[yellow]unsupported[/] {case.label} at {tier.label}", highlight=False)
    print_ops(console, timings, settings.threads)
    _write_json(json_file, {"environment": environment(found), "timings": [t.as_json() for t in timings]})
    if plot_file:
        write_atomically(plot_file, ops_page(timings, f"samebits bench ops: {found.name}, {tier.label}"))


@app.command("schedule")
def schedule(
    scenario: str = typer.Option(
        "long-prompt",
        "--scenario",
        help=f"long-prompt: a prompt of {LONG_PROMPT} tokens comes while {NUM_DECODERS} answers are under way. "
        "mixed: users come at random.",
    ),
    arrivals: Path = typer.Option(
        None,
        "--arrivals",
        help="Recorded requests instead: a JSON object a line with at_seconds, prompt_tokens, new_tokens and, "
        "where prompts start alike, prefix_group and prefix_tokens.",
    ),
    budgets: str = typer.Option(
        "dynamic,256,512,off", "--budgets", help="Prompt tokens a step may take: dynamic, off, or a number."
    ),
    rate: float = typer.Option(1.0, "--rate", help="mixed: requests a second.", min=1e-3, max=1e6),
    seconds: float = typer.Option(60.0, "--seconds", help="mixed: how long they come.", min=1e-3, max=1e6),
    prompts: str = typer.Option("32,128,512,2048", "--prompts", help="mixed: lengths of prompts, each as likely."),
    new_tokens: int = typer.Option(64, "--new-tokens", help="mixed: of an answer, on average.", min=1, max=1 << 16),
    prefix_share: float = typer.Option(
        0.5, "--prefix-share", help="mixed: share of prompts that start with a system prompt.", min=0, max=1
    ),
    seed: int = typer.Option(0, "--seed", help="mixed: other requests of the same kind.", min=0),
    context: int = typer.Option(8192, "--context", help="Tokens a sequence may have.", min=2, max=1 << 20),
    sequences: int = typer.Option(64, "--sequences", help="Answers under way at once.", min=1, max=4096),
    pages: int = typer.Option(
        None, "--pages", help="Of the cache, 16 tokens each; ample if absent.", min=2, max=1 << 24
    ),
    cost: str = typer.Option(
        "3,0.8,0.75,0.2", "--cost", help="ms a step, ms a decode, ms a prompt token, us a position attended to."
    ),
    json_file: Path = JSON_FILE,
    plot_file: Path = PLOT_FILE,
) -> None:
    """How long answers freeze while prompts come in, policy by policy.

    The real scheduler and page cache run under a virtual clock, without a model; every policy sees the same requests.
    """
    console = _check_files(json_file, plot_file)
    policies = {name: policy_of(name) for name in (part.strip() for part in budgets.split(","))}
    mixture = Mixture(rate, seconds, plan.numbers("--prompts", prompts, 1), new_tokens, prefix_share, seed)
    requests, title = _requests(scenario, arrivals, mixture)
    room, costs = Room(sequences, context, num_pages=pages), cost_of(cost)
    outcomes = [simulate(name, policy, requests, room, costs) for name, policy in policies.items()]
    notes = setting_lines(costs, room)
    print_outcomes(console, outcomes, title, notes)
    results = {"policies": {o.name: figures(o) for o in outcomes}}
    _write_json(json_file, {"workload": title, "cost": asdict(costs), "room": asdict(room), **results})
    if plot_file:
        write_atomically(plot_file, schedule_page(outcomes, f"samebits bench schedule: {title}", notes))


def _requests(scenario: str, file: Path | None, mixture: Mixture) -> tuple[tuple[Arrival, ...], str]:
    """What comes, and what it is called."""
    if file:
        found = read_arrivals(file)
        return found, f"{file.name}: {len(found)} requests"
    if scenario == "long-prompt":
        return long_prompt(), f"a prompt of {LONG_PROMPT} tokens beside {NUM_DECODERS} answers"
    if scenario == "mixed":
        found = mixed(mixture)
        return found, f"mixed: {len(found)} requests at {mixture.rate:g} a second, seed {mixture.seed}"
    raise UnknownName("scenario", scenario, ["long-prompt", "mixed"])
