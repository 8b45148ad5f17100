"""`samebits warm`: a model's kernels compiled ahead, so that its first start is as fast as any other."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated

from samebits.backends.discovery import default_name, described, expect_model, get
from samebits.cli import flags
from samebits.cli.loading_line import LoadingLine
from samebits.cli.model_options import engine_settings, settings_command
from samebits.cli.output import AsJson, Output, console_for, emit

if TYPE_CHECKING:
    from rich.console import Console

    from samebits.backends.interface import Compilation

MOST_ROWS = 12  # of the table: what took longest


def warm(
    settings: SimpleNamespace,
    model: str = flags.Argument(
        ..., help="The model: smollm2, a GGUF file, a safetensors file or folder, or an address."
    ),
    target: Annotated[
        str | None,
        flags.Option(
            "--target", help="Compile for a GPU that is not here: its architecture and multiprocessors, as sm_90/132."
        ),
    ] = None,
    as_json: AsJson = False,
    output: Output = None,
) -> None:
    """Compile all kernels of a model ahead, and keep them for later starts.

    The options are those with which the model will be run: other numerics or cache formats need other kernels.

    Exit status: 0, 1 where a kernel does not compile, 2 for a mistake in the call.
    """
    console = console_for("warm", as_json, output=output)
    started = time.perf_counter()
    where = settings.backend or default_name()
    if target is None:
        expect_model(where)
    from samebits.debug.prepare import open_model
    from samebits.engine.sizes import divide, policy_for
    from samebits.engine.warm import warm as compile_all

    checkpoint = open_model(model)
    found = get(where) if target is None else described(target)
    chosen = engine_settings(settings)
    limits = divide(checkpoint, found, chosen, policy_for(chosen, found)).limits
    with LoadingLine() as line:
        tier, made = compile_all(checkpoint, found, limits, settings.numerics, line.show_compiling)
    seconds = time.perf_counter() - started
    from samebits.kernels.triton import cache_folder

    failed = [kernel for kernel in made.compiled if kernel.error]
    content = {
        "model": model,
        "backend": found.name,
        "device": found.caps.device if found.caps else "",
        "numerics": tier.label,
        "num_kernels": made.num_kernels,
        "num_compiled": len(made.compiled) - len(failed),
        "num_failed": len(failed),
        "seconds": seconds,
        "folder": str(cache_folder()),
        "kernels_per_size": dict(made.per_size),
        "compiled": [{"name": k.name, "seconds": k.seconds, "error": k.error} for k in made.compiled],
    }
    emit(content, as_json, output)
    if not as_json:
        _show(console, made)
        what = f"{made.num_kernels} kernels, {content['num_compiled']} of them compiled now in {seconds:.1f} s"
        console.print(f"{what}, kept in {content['folder']}", highlight=False, soft_wrap=True)
    if failed:
        raise SystemExit(1)


def _show(console: Console, made: Compilation) -> None:
    """The sizes with the number of their kernels, and what took longest."""
    from rich.table import Table

    sizes = Table(title="kernels of a step")
    sizes.add_column("step")
    sizes.add_column("kernels", justify="right")
    for label, count in made.per_size.items():
        sizes.add_row(label, str(count))
    console.print(sizes)
    if made.compiled:
        slowest = Table(title="compiled now, the slowest")
        for name in ("kernel", "seconds", ""):
            slowest.add_column(name, justify="right" if name == "seconds" else "left")
        failures_first = sorted(made.compiled, key=lambda kernel: (not kernel.error, -kernel.seconds))
        for kernel in failures_first[:MOST_ROWS]:
            slowest.add_row(kernel.name, f"{kernel.seconds:.1f}", kernel.error)
        console.print(slowest)


warm = settings_command(warm, without=("model", "threads", "speculate", "sampling_defaults"))
