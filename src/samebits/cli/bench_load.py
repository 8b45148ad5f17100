"""`samebits bench serve` and `schedule`: many requests, on a model or on a virtual clock."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.progress import track

from samebits.backends.discovery import default_name
from samebits.bench import measured_rows
from samebits.bench.ceiling import usable_threads
from samebits.bench.fleet.workload import Groups
from samebits.bench.guessing import Guessing
from samebits.bench.ours import Settings
from samebits.bench.peer import open_peer
from samebits.bench.report import peer_line, print_ratio
from samebits.bench.rounds import measure_row
from samebits.bench.schedule_plot import schedule_page
from samebits.bench.schedule_report import figures, print_outcomes, setting_lines
from samebits.bench.serve import Serving, serve_row
from samebits.bench.simulate import Cost, Room, cost_of, policy_of, simulate
from samebits.bench.step_costs import measured_cost
from samebits.bench.workload import (
    LONG_PROMPT,
    NUM_DECODERS,
    Arrival,
    Mixture,
    long_prompt,
    mixed,
    read_arrivals,
    together,
)
from samebits.cli import flags
from samebits.cli.bench_fleet import GROUP_TOKENS, GROUPS, REPLICAS, ROUTING, simulate_fleet
from samebits.cli.bench_options import (
    BACKEND,
    NUMERICS,
    PLOT_FILE,
    THREADS,
)
from samebits.cli.output import AsJson, Output, console_for, emit
from samebits.core.errors import UnknownName
from samebits.core.files import write_atomically
from samebits.engine.drafts.pace import HOST
from samebits.loaders.catalog import DEFAULT_MODEL
from samebits.verify.provenance import environment

SCENARIO_HELP = (
    f"Which requests come. together: all at once. long-prompt: a prompt of {LONG_PROMPT} tokens, while {NUM_DECODERS} "
    "answers are under way. mixed: at random times."
)
ARRIVALS = flags.Option(
    None,
    "--arrivals",
    help="A file of recorded requests instead: one JSON object per line with at_seconds, prompt_tokens, "
    "new_tokens and, where prompts start alike, prefix_group and prefix_tokens.",
)
RATE = flags.Option(1.0, "--rate", help="With --scenario mixed: requests per second.", min=1e-3, max=1e6)
SECONDS = flags.Option(
    60.0, "--seconds", help="With --scenario mixed: how long requests keep coming.", min=1e-3, max=1e6
)
PREFIX_SHARE = flags.Option(
    0.5,
    "--prefix-share",
    help="With --scenario mixed: the share of prompts that start with a system prompt.",
    min=0,
    max=1,
)
SEED = flags.Option(0, "--seed", help="The seed; another one draws other requests of the same kind.", min=0)
BUDGETS = "dynamic,256,512,off"
CONTEXT = flags.Option(8192, "--context", help="The most tokens that a sequence may have.", min=2, max=1 << 20)
PAGES = flags.Option(None, "--pages", help="Pages of the cache, 16 tokens each; ample if absent.", min=2, max=1 << 24)


def serve(
    model: str = flags.Argument(
        DEFAULT_MODEL, help="The model: smollm2, a GGUF file, a safetensors folder, or an address."
    ),
    scenario: str = flags.Option("together", "--scenario", help=SCENARIO_HELP),
    arrivals: Path = ARRIVALS,
    requests: int = flags.Option(
        32, "--requests", help="With --scenario together: the number of requests.", min=1, max=4096
    ),
    prompts: str = flags.Option(
        "50,800",
        "--prompts",
        help="With --scenario together: the shortest and the longest prompt; with mixed: lengths, all equally likely.",
    ),
    new_tokens: int = flags.Option(
        64, "--new-tokens", help="Tokens per answer; with --scenario mixed, on average.", min=1, max=1 << 16
    ),
    shared_prefix: int = flags.Option(
        0, "--shared-prefix", help="With --scenario together: tokens that all prompts share, before their own.", min=0
    ),
    budgets: str = flags.Option(
        "dynamic",
        "--budgets",
        help="Prompt tokens that a step may take: numbers, dynamic or off, tried one after another.",
    ),
    rate: float = RATE,
    seconds: float = SECONDS,
    prefix_share: float = PREFIX_SHARE,
    seed: int = SEED,
    context: int = CONTEXT,
    sequences: int = flags.Option(32, "--sequences", help="Answers that may be under way at once.", min=1, max=4096),
    pages: int = PAGES,
    backend: str = BACKEND,
    numerics: str = NUMERICS,
    threads: int = THREADS,
    against: bool = flags.Option(
        False,
        "--against-llama.cpp",
        help="With --scenario together: measure llama.cpp on the same work too, with its fastest KV format.",
    ),
    peer_python: str = flags.Option(
        None,
        "--peer-python",
        envvar="SAMEBITS_PEER_PYTHON",
        help="The interpreter that has the peer; this one if absent.",
    ),
    repeats: int = flags.Option(3, "--repeats", help="The number of rounds against the peer.", min=1, max=1000),
    as_json: AsJson = False,
    output: Output = None,
    plot_file: Path = PLOT_FILE,
) -> None:
    """Measure latencies and throughput of a model under load; every budget gets the same requests."""
    console = console_for("bench", as_json, output=output, plot=plot_file)
    policies = {name: policy_of(name) for name in (part.strip() for part in budgets.split(","))}
    lengths = measured_rows.numbers("--prompts", prompts, 1)
    if scenario == "together" and not arrivals:
        coming = together(requests, lengths, new_tokens, shared_prefix, seed)
        title = f"{requests} requests at once, seed {seed}"
    else:
        mixture = Mixture(rate, seconds, lengths, new_tokens, prefix_share, seed)
        coming, title = _requests(scenario, arrivals, mixture)
    settings = Settings(model, backend or default_name(), threads or usable_threads(), numerics)
    serving = Serving(settings, policies, sequences, context, pages)
    quiet = not console.is_terminal
    names = track(policies, "serving", console=console, transient=True, disable=quiet)
    outcomes = [serving.play(name, coming) for name in names]
    notes = [serving.line]
    print_outcomes(console, outcomes, title, notes)
    content: dict[str, Any] = {"workload": title, "environment": environment(serving.found)}
    content["policies"] = {o.name: figures(o) for o in outcomes}
    if against:
        with closing(open_peer("llama.cpp", peer_python, serving.checkpoint, settings)) as peer:
            result = measure_row(serve_row(coming), serving, [peer], repeats)
            print_ratio(console, result, peer_line(peer.name, peer.facts))
            content["against"] = result.as_json()
    emit(content, as_json, output)
    if plot_file:
        write_atomically(plot_file, schedule_page(outcomes, f"samebits bench serve: {title}", notes))


def schedule(
    scenario: str = flags.Option("long-prompt", "--scenario", help=SCENARIO_HELP),
    replicas: str = REPLICAS,
    routing: str = ROUTING,
    groups: int = GROUPS,
    group_tokens: int = GROUP_TOKENS,
    arrivals: Path = ARRIVALS,
    budgets: str = flags.Option(
        None,
        "--budgets",
        help="Prompt tokens that a step may take: numbers, dynamic or off; dynamic,256,512,off if absent, "
        "with --replicas dynamic.",
    ),
    rate: float = flags.Option(
        1.0, "--rate", help="Requests per second, with --replicas and --scenario mixed; per replica.", min=1e-3, max=1e6
    ),
    seconds: float = flags.Option(
        60.0,
        "--seconds",
        help="With --replicas and --scenario mixed: how long requests keep coming.",
        min=1e-3,
        max=1e6,
    ),
    prompts: str = flags.Option(
        "32,128,512,2048",
        "--prompts",
        help="With --replicas and --scenario mixed: lengths of what is a prompt's own, all equally likely.",
    ),
    new_tokens: int = flags.Option(
        64,
        "--new-tokens",
        help="With --replicas and --scenario mixed: tokens per answer, on average.",
        min=1,
        max=1 << 16,
    ),
    prefix_share: float = PREFIX_SHARE,
    seed: int = SEED,
    context: int = CONTEXT,
    sequences: int = flags.Option(64, "--sequences", help="Answers that may be under way at once.", min=1, max=4096),
    pages: int = PAGES,
    cost: str = flags.Option(
        "3,0.8,0.75,0.2",
        "--cost",
        help="What a step costs: ms per step, ms per decode, ms per prompt token, us per position attended to; "
        "or the file that bench model --output wrote.",
    ),
    speculate: float = flags.Option(
        None, "--speculate", help="Every policy with guessed tokens too, each right with this chance.", min=0, max=1
    ),
    as_json: AsJson = False,
    output: Output = None,
    plot_file: Path = PLOT_FILE,
) -> None:
    """Show how long answers stall while prompts come in, policy by policy.

    The real scheduler and page cache run under a virtual clock, without a model; every policy sees the same requests.
    With --replicas, many of them do, and policies are those of the router before them.
    """
    console = console_for("bench", as_json, output=output, plot=plot_file)
    lengths = measured_rows.numbers("--prompts", prompts, 1)
    room, costs = Room(sequences, context, num_pages=pages), _cost(cost)
    if replicas is not None:
        users = Groups(rate, seconds, lengths, new_tokens, groups, group_tokens, seed)
        asked = read_arrivals(arrivals) if arrivals else users
        files = (as_json, output, plot_file)
        simulate_fleet(console, replicas, routing, budgets or "dynamic", asked, room, costs, seed, *files)
        return
    policies = {name: policy_of(name) for name in (part.strip() for part in (budgets or BUDGETS).split(","))}
    requests, title = _requests(scenario, arrivals, Mixture(rate, seconds, lengths, new_tokens, prefix_share, seed))
    outcomes = [simulate(name, policy, requests, room, costs) for name, policy in policies.items()]
    if speculate is not None:
        outcomes += [
            simulate(f"{name}, guessing", policy, requests, room, costs, Guessing(speculate, HOST, seed))
            for name, policy in policies.items()
        ]
    notes = setting_lines(costs, room)
    print_outcomes(console, outcomes, title, notes)
    results = {"policies": {o.name: figures(o) for o in outcomes}}
    emit({"workload": title, "cost": asdict(costs), "room": asdict(room), **results}, as_json, output)
    if plot_file:
        write_atomically(plot_file, schedule_page(outcomes, f"samebits bench schedule: {title}", notes))


def _cost(text: str) -> Cost:
    """Four numbers, or a file of measurements."""
    return measured_cost(Path(text)) if text.endswith(".json") else cost_of(text)


def _requests(scenario: str, file: Path | None, mixture: Mixture) -> tuple[tuple[Arrival, ...], str]:
    """The requests, and a title for them."""
    if file:
        found = read_arrivals(file)
        return found, f"{file.name}: {len(found)} requests"
    if scenario == "long-prompt":
        return long_prompt(), f"a prompt of {LONG_PROMPT} tokens beside {NUM_DECODERS} answers"
    if scenario == "mixed":
        found = mixed(mixture)
        return found, f"mixed: {len(found)} requests at {mixture.rate:g} per second, seed {mixture.seed}"
    raise UnknownName("scenario", scenario, ["long-prompt", "mixed"])
