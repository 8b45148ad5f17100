"""`samebits pull`, `list` and `remove`: the models of the cache."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import datetime

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from samebits.cli import flags
from samebits.cli.output import AsJson
from samebits.debug.text import size_text
from samebits.loaders.cache import cache_dir
from samebits.loaders.catalog import DEFAULT_MODEL, MODELS, HubModel
from samebits.loaders.obtain import CachedModel, cached_models
from samebits.loaders.obtain import remove as remove_model
from samebits.loaders.pull import pull as pull_model
from samebits.loaders.pull_bar import PullBar


def pull(
    model: str = flags.Argument(
        DEFAULT_MODEL, help="A short name, hf:owner/repo, hf:owner/repo:Q4_K_M, an https address, or a local path."
    ),
    sha256: str = flags.Option(None, "--sha256", help="The checksum the file must have."),
    as_json: AsJson = False,
) -> None:
    """Fetch a model into the cache and print its path. A download that was interrupted goes on where it stopped."""
    with PullBar() as bar:
        path = pull_model(model, bar.report, sha256)
    flags.echo(json.dumps({"model": model, "path": str(path)}) if as_json else path)


def list_models(
    names: bool = flags.Option(False, "--names", help="Show the short names of models that can be pulled instead."),
    as_json: AsJson = False,
) -> None:
    """List the models in the cache: name, size, format, path, and when each was used last."""
    if names:
        _list_names(as_json)
        return
    found = cached_models()
    if as_json:
        flags.echo(json.dumps([_as_json(model) for model in found], indent=1))
        return
    if not found:
        flags.echo(f"nothing in {cache_dir()}; `samebits pull` fetches {DEFAULT_MODEL}")
        return
    table = Table(title=escape(f"models in {cache_dir()}"))
    for column in ("name", "size", "format", "used", "path"):
        table.add_column(column, overflow="fold")
    for model in found:
        used = "never" if model.used is None else f"{datetime.fromtimestamp(model.used):%Y-%m-%d %H:%M}"
        path = str(model.path.relative_to(cache_dir()))
        table.add_row(escape(model.name), size_text(model.num_bytes), model.format, used, escape(path))
    Console().print(table)


def _as_json(model: CachedModel) -> dict[str, object]:
    facts = asdict(model)
    del facts["entry"]
    used = None if model.used is None else datetime.fromtimestamp(model.used).astimezone().isoformat()
    return {**facts, "path": str(model.path), "used": used}


def _list_names(as_json: bool) -> None:
    facts = {
        name: model.address if isinstance(model, HubModel) else f"{model.file_name} of {model.requirement}"
        for name, model in MODELS.items()
    }
    if as_json:
        flags.echo(json.dumps(facts, indent=1))
        return
    table = Table(title="short names")
    for column in ("name", "model"):
        table.add_column(column, overflow="fold")
    for name, model in facts.items():
        table.add_row(name, escape(model))
    Console().print(table)


def remove(
    model: str = flags.Argument(help="The model's name as `samebits list` shows it, or its address or path there."),
    as_json: AsJson = False,
) -> None:
    """Remove a model from the cache and say how much room that gives."""
    gone = remove_model(model)
    if as_json:
        flags.echo(json.dumps(_as_json(gone)))
    else:
        flags.echo(f"removed {gone.name}, {size_text(gone.num_bytes)}")
