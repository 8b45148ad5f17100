"""`samebits trace`: every tensor of a prompt's prefill, in lines that `diff` can compare."""

from __future__ import annotations

from rich.console import Console
from rich.progress import Progress

from samebits.backends.discovery import default_name, get
from samebits.cli import flags
from samebits.cli.output import AsJson, Output, console_for, emit
from samebits.core.errors import BadInput
from samebits.core.numerics import NUMERICS_VERSION
from samebits.core.tiers import Tier
from samebits.debug.labels import Label, label_values
from samebits.debug.prepare import Prefill, choose_tokens, graph_and_tier, open_model, step_graph
from samebits.debug.stepper import Stepper, walk
from samebits.debug.summary import Summary, line, summarize
from samebits.graph import Graph

MAX_VALUES = 64


def progress_bar(console: Console) -> Progress:
    """A bar on standard error where someone is looking."""
    return Progress(console=console, transient=True, disable=not console.is_terminal)


def _until_last(graph: Graph, labels: dict[str, Label], layer: int | None, text: str) -> tuple[set[str], int]:
    """(labels that are wanted, number of nodes to run for them); BadInput where there is none."""
    wanted: set[str] = set()
    count = 0
    for index, node in enumerate(graph.nodes):
        for label in (labels[v.name] for v in node.outputs):
            if layer in (None, label.layer) and (text in label.text or text in node.op.name):
                wanted.add(label.text)
                count = index + 1
    if not wanted:
        last = max((label.layer or 0 for label in labels.values()), default=0)
        given = "any layer" if layer is None else f"layer {layer}"
        raise BadInput("trace", "--layer and --filter", f"{given}, {text!r}", f"a tensor's name in layers 0 to {last}")
    return wanted, count


def trace(
    model: str = flags.Argument(
        ..., help="The model: smollm2, a GGUF file, a safetensors file or folder, or an address."
    ),
    prompt: str = flags.Option(None, "--prompt", help="The text to run; a short sentence if absent."),
    tokens: str = flags.Option(None, "--tokens", help="Token ids to run instead, such as 1,2,3."),
    backend: str | None = flags.Option(
        None, "--backend", envvar="SAMEBITS_BACKEND", help="The backend, by name or as module:Class."
    ),
    numerics: str = flags.Option(
        None,
        "--numerics",
        envvar="SAMEBITS_NUMERICS",
        help="The tier: fast, invariant or portable; the strongest if absent.",
    ),
    fused: bool = flags.Option(
        False, "--fused/--unfused", help="Run the graph after the passes, or as the model states it."
    ),
    layer: int = flags.Option(None, "--layer", help="Show only the tensors of this layer.", min=0),
    text: str = flags.Option("", "--filter", help="Show only tensors whose name or op contains this text."),
    values: int = flags.Option(4, "--values", help="How many leading values to show.", min=0, max=MAX_VALUES),
    as_json: AsJson = False,
    output: Output = None,
) -> None:
    """Run a prompt's prefill op by op and print a line for every tensor.

    Lines come in the order of the computation, and nothing else is printed, so two runs can be compared with diff -y.
    """
    console = console_for("trace", True, output=output)
    asked = Tier.parse(numerics) if numerics else None
    found, checkpoint = get(backend or default_name()), open_model(model)
    prefill = Prefill(checkpoint, choose_tokens(checkpoint, prompt, tokens))
    graph, tier = graph_and_tier(step_graph(checkpoint, len(prefill.tokens)), found, asked, fused)
    labels = label_values(graph)
    wanted, count = _until_last(graph, labels, layer, text)
    flags.echo(f"{found.name} at {tier.label}, tokens {list(prefill.tokens)}", err=True)
    width = max(map(len, wanted))
    summaries: list[Summary] = []
    with progress_bar(console) as bar:
        task = bar.add_task("running", total=count)
        steps = walk(graph, prefill.loader(graph), [Stepper(found, tier)])
        for _, step in zip(range(count), steps, strict=False):
            for label, tensor in zip(step.labels, step.results[0], strict=True):
                if label.text in wanted:
                    summaries.append(summarize(label, step.node.op.name, tensor, values))
                    if not as_json:
                        flags.echo(line(summaries[-1], width))
            bar.advance(task)
    if as_json or output:
        facts = {"model": model, "backend": found.name, "tier": tier.label, "numerics_version": NUMERICS_VERSION}
        rows = [s.as_json() for s in summaries]
        emit({**facts, "tokens": list(prefill.tokens), "fused": fused, "tensors": rows}, as_json, output)
