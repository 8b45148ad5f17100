"""`samebits bench`: options of the measurements."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, track

from samebits.backends.discovery import default_name
from samebits.bench import measured_rows
from samebits.bench.ceiling import usable_threads
from samebits.bench.model_run import bench_model
from samebits.bench.ops import chosen_cases, ops_page, print_ops, time_op
from samebits.bench.ours import Settings
from samebits.bench.peer import PACKAGES, Peer, open_peer
from samebits.bench.plot import model_page
from samebits.bench.report import print_run
from samebits.cli import flags
from samebits.cli.bench_gpu import attention_sizes, bench_gpu_ops
from samebits.cli.bench_load import schedule, serve
from samebits.cli.bench_options import (
    BACKEND,
    NUMERICS,
    PLOT_FILE,
    THREADS,
)
from samebits.cli.output import AsJson, Output, console_for, emit
from samebits.core.errors import BadInput, UnknownName
from samebits.core.files import write_atomically
from samebits.core.tiers import Tier
from samebits.loaders.catalog import DEFAULT_MODEL
from samebits.models.checkpoint import FileCheckpoint
from samebits.verify.provenance import environment

app = flags.Group(help="Measure models, ops and servers beside the hardware's limits and llama.cpp.")
app.add("serve")(serve)
app.add("schedule")(schedule)


@app.add("model")
def model(
    model: str = flags.Argument(
        DEFAULT_MODEL, help="The model: smollm2, a GGUF file, a safetensors folder, or an address."
    ),
    backend: str = BACKEND,
    numerics: str = NUMERICS,
    threads: int = THREADS,
    prompts: str = flags.Option("512,4096", "--prompts", help="Numbers of tokens to prefill."),
    depths: str = flags.Option(
        "0,512,2048", "--depths", help="Numbers of tokens that a single sequence holds when it decodes."
    ),
    batches: str = flags.Option(
        "8,32",
        "--batches",
        help=f"Numbers of sequences that decode together, {measured_rows.SHORT_PROMPT} tokens in each.",
    ),
    decode_tokens: int = flags.Option(
        32, "--decode-tokens", help="The number of steps in each decode.", min=1, max=4096
    ),
    k_format: str = flags.Option("f16", "--k-format", envvar="SAMEBITS_K_FORMAT", help="The format of cached keys."),
    v_format: str = flags.Option("f16", "--v-format", envvar="SAMEBITS_V_FORMAT", help="The format of cached values."),
    repeats: int = flags.Option(5, "--repeats", help="The number of rounds per row.", min=1, max=1000),
    against: list[str] = flags.Option(
        [],
        "--against",
        help="A peer to measure in the same run: llama.cpp or transformers. It may be given several times.",
    ),
    peer_python: str = flags.Option(
        None,
        "--peer-python",
        envvar="SAMEBITS_PEER_PYTHON",
        help="The interpreter that has the peers; this one if absent.",
    ),
    as_json: AsJson = False,
    output: Output = None,
    plot_file: Path = PLOT_FILE,
) -> None:
    """Measure a model: prefill and decode in tokens per second, load time, memory, share of the read ceiling.

    Ratios are taken round by round, ours first and then each peer, with the KV format and attention that suit it best.
    """
    console = console_for("bench", as_json, output=output, plot=plot_file)
    if unknown := set(against) - set(PACKAGES):
        raise UnknownName("peer", min(unknown), list(PACKAGES))
    rows = measured_rows.rows_for(
        measured_rows.numbers("--prompts", prompts, 1),
        measured_rows.numbers("--depths", depths, 0),
        measured_rows.numbers("--batches", batches, 1),
        decode_tokens,
    )
    where = backend or default_name()
    settings = Settings(model, where, threads or usable_threads(), numerics, k_format, v_format)

    def open_peers(checkpoint: FileCheckpoint) -> Iterable[Peer]:
        return map(partial(open_peer, python=peer_python, checkpoint=checkpoint, settings=settings), against)

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    quiet = not console.is_terminal
    # drawn once per second: a bar that moves more often would show in the figures
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
    emit(run.as_json(), as_json, output)
    if plot_file:
        write_atomically(plot_file, model_page(run))


@app.add("ops")
def ops(
    backend: str = BACKEND,
    numerics: str = flags.Option(
        "portable", "--numerics", envvar="SAMEBITS_NUMERICS", help="The tier that kernels must keep."
    ),
    threads: int = THREADS,
    only: str = flags.Option(
        None, "--only", help="Time only the cases whose label contains this text, such as 'gemm/decode'."
    ),
    batch: str = flags.Option(
        "",
        "--batch",
        help="Numbers of sequences, such as 1,16,64. On a GPU, attention alone is timed with each.",
    ),
    context: str = flags.Option(
        "",
        "--context",
        help="Numbers of tokens per sequence, such as 512,4096, likewise for attention.",
    ),
    as_json: AsJson = False,
    output: Output = None,
    plot_file: Path = PLOT_FILE,
) -> None:
    """Measure the ops that take up most of a step: bytes and operations per second, next to a plain read of the bytes.

    On a GPU, ops are captured as graphs, inputs exceed its last cache, and libraries are measured in the same run.
    """
    sizes = attention_sizes(batch, context)
    console = console_for("bench", as_json, output=output, plot=plot_file)
    tier = Tier.parse(numerics)
    settings = Settings("", backend or default_name(), threads or usable_threads())
    found = settings.device()
    if found.backend and (stopwatch := found.backend.stopwatch()):
        figures, page = bench_gpu_ops(console, found, stopwatch, tier, only, sizes)
        emit(figures, as_json, output)
        if plot_file:
            write_atomically(plot_file, page)
        return
    if sizes:
        raise BadInput("bench ops", "--batch and --context", found.name, "a backend that measures on a GPU's clock")
    if found.backend:
        found.backend.set_threads(settings.threads)  # as many as read for the ceiling, however short an op is
    cases = chosen_cases(only)
    timings = []
    for case in track(cases, "timing", console=console, transient=True, disable=not console.is_terminal):
        if found.backend and (timing := time_op(found.backend, case, tier, settings.threads)):
            timings.append(timing)
        else:
            console.print(f"[yellow]unsupported[/] {case.label} at {tier.label}", highlight=False)
    print_ops(console, timings, settings.threads)
    emit({"environment": environment(found), "timings": [t.as_json() for t in timings]}, as_json, output)
    if plot_file:
        write_atomically(plot_file, ops_page(timings, f"samebits bench ops: {found.name}, {tier.label}"))
