"""`samebits explain`: which kernels a model would use on a backend, and why."""

from __future__ import annotations

from samebits.backends.discovery import default_name, get
from samebits.cli import flags
from samebits.cli.output import AsJson, Output, emit
from samebits.core.errors import Unsupported
from samebits.core.files import check_target
from samebits.core.tiers import Tier
from samebits.debug.explain import explain as explain_graph
from samebits.debug.explain_text import as_text
from samebits.debug.prepare import open_model, step_graph

NUM_TOKENS = 512  # the largest step the graph is built for; kernels do not see it


def explain(
    model: str = flags.Argument(
        ..., help="The model: smollm2, a GGUF file, a safetensors file or folder, or an address."
    ),
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
        True, "--fused/--unfused", help="Show the graph after the passes, or as the model states it."
    ),
    every_layer: bool = flags.Option(False, "--all", help="Show every layer, even where several are alike."),
    as_json: AsJson = False,
    output: Output = None,
) -> None:
    """Show every node of a model's step: op, result, kernel, tier, refusals; and the tier the model gets.

    Exit status: 0, or 2 where the tier cannot be given, or for a mistake in the call.
    """
    check_target("explain", "--output", output)
    asked = Tier.parse(numerics) if numerics else None
    found = get(backend or default_name())
    checkpoint = open_model(model)
    graph = step_graph(checkpoint, min(NUM_TOKENS, checkpoint.config.context_len))
    explanation = explain_graph(graph, checkpoint.architecture.name, found, asked, fused)
    emit(explanation.as_json(), as_json, output)
    if not as_json:
        flags.echo(as_text(explanation, every_layer))
    if problem := explanation.problem():
        raise Unsupported(problem)
