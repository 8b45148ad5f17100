"""`samebits diff`: the first tensor in which two backends differ, and the error from there on."""

from __future__ import annotations

import sys
from pathlib import Path

from rich.console import Console

from samebits.backends.discovery import get
from samebits.cli import flags
from samebits.cli.output import AsJson, Output, console_for, emit
from samebits.cli.trace import progress_bar
from samebits.core.errors import BadInput
from samebits.core.files import write_atomically
from samebits.core.tiers import Tier
from samebits.debug.diff import Report, Side, as_text, collect, compare
from samebits.debug.diff_html import diff_page
from samebits.debug.prepare import Prefill, choose_tokens, graph_and_tier, open_model, resolve_tier, step_graph
from samebits.debug.stepper import Stepper


def diff(
    model: str = flags.Argument(
        ..., help="The model: smollm2, a GGUF file, a safetensors file or folder, or an address."
    ),
    backends: list[str] = flags.Option(
        ...,
        "--backend",
        help="The backend to examine against the reference; given twice, the second is examined against the first.",
    ),
    numerics: str = flags.Option(
        None,
        "--numerics",
        envvar="SAMEBITS_NUMERICS",
        help="The tier: fast, invariant or portable; each backend's strongest if absent.",
    ),
    prompt: str = flags.Option(None, "--prompt", help="The text to run; a short sentence if absent."),
    tokens: str = flags.Option(None, "--tokens", help="Token ids to run instead, such as 1,2,3."),
    same_inputs: bool = flags.Option(
        False,
        "--same-inputs/--carry",
        help="Give both backends the first one's inputs to every op, or let each go on with its own values.",
    ),
    fused: bool = flags.Option(
        False, "--fused/--unfused", help="Run the graph after the second backend's passes, or as the model states it."
    ),
    as_json: AsJson = False,
    output: Output = None,
    html_file: Path = flags.Option(None, "--html", help="Write a page with a plot to this file."),
) -> None:
    """Run a prompt's prefill op by op on two backends; name the first tensor whose bits differ.

    Exit status: 0 if all bits agree, 1 if some differ, 2 for a mistake in the call.
    """
    console_for("diff", as_json, output=output, html=html_file)
    if len(backends) > 2:
        raise BadInput("diff", "--backend", f"{len(backends)} backends", "one or two")
    asked = Tier.parse(numerics) if numerics else None
    a, b = (get(name) for name in (["reference", *backends] if len(backends) == 1 else backends))
    checkpoint = open_model(model)
    prefill = Prefill(checkpoint, choose_tokens(checkpoint, prompt, tokens))
    graph, tier_b = graph_and_tier(step_graph(checkpoint, len(prefill.tokens)), b, asked, fused)
    tier_a = resolve_tier(a, graph, asked)
    count = sum(len(node.outputs) for node in graph.nodes)
    with progress_bar(Console(stderr=True)) as bar:
        diffs = compare(graph, prefill.loader(graph), Stepper(a, tier_a), Stepper(b, tier_b), same_inputs)
        tensors, stopped = collect(bar.track(diffs, total=count, description="comparing"))
    report = Report(
        model=model,
        a=Side(a.name, tier_a.label),
        b=Side(b.name, tier_b.label),
        tokens=prefill.tokens,
        same_inputs=same_inputs,
        fused=fused,
        tensors=tensors,
        num_expected=count,
        stopped=stopped,
    )
    flags.echo(as_text(report), err=as_json)
    emit(report.as_json(), as_json, output)
    if html_file:
        write_atomically(html_file, diff_page(report))
    sys.exit(0 if report.first is None else 1)
