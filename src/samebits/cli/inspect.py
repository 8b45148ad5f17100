"""`samebits inspect`: what is in a model file, and what it would need."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict
from math import prod
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import numpy as np

from samebits.cli import flags
from samebits.cli.inspect_report import print_division, print_everything, print_summary
from samebits.cli.model_options import engine_settings, settings_command
from samebits.cli.output import AsJson, Output, console_for, emit
from samebits.core.errors import SamebitsError
from samebits.engine.settings import EngineSettings
from samebits.engine.sizes import Division, divide, policy_for
from samebits.loaders.catalog import DEFAULT_MODEL
from samebits.loaders.files import open_file
from samebits.loaders.gguf import GgufFile
from samebits.loaders.obtain import obtain
from samebits.loaders.safetensors_dir import SafetensorsDir
from samebits.loaders.texts import Texts
from samebits.models.checkpoint import FileCheckpoint, build_step, describe, open_checkpoint
from samebits.models.parts import Limits
from samebits.models.parts.decoder import Decoder
from samebits.models.parts.state import Slot
from samebits.models.reading import reading

SHOWN_ITEMS = 4
SHOWN_CHARS = 200
KV_BYTES = 2  # f16
SLOT_BYTES = 4  # f32


def shortened(value: Any) -> Any:
    """A metadata value for people and JSON: long arrays and texts as their beginning and their length."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, list | Texts):
        items = [shortened(item) for item in value[:SHOWN_ITEMS]]
        return items if len(value) <= SHOWN_ITEMS else {"length": len(value), "first": items}
    if isinstance(value, str) and len(value) > SHOWN_CHARS:
        return {"length": len(value), "first": value[:SHOWN_CHARS]}
    if isinstance(value, float) and not np.isfinite(value):
        return str(value)
    return value


def kv_bytes(config: Decoder, num_tokens: int) -> int:
    """Bytes of f16 keys and values, or of rows that are both, of so many tokens; layers in a window keep no more than
    that, others none."""
    attends = [layer for layer in config.layers if layer.kind == "attention"]
    kept = sum(min(layer.window or num_tokens, num_tokens) for layer in attends)
    per_token = config.latent.row_size if config.latent else 2 * config.num_kv_heads * config.head_size
    return kept * per_token * KV_BYTES


def slot_bytes(checkpoint: FileCheckpoint) -> int:
    """Bytes of the states that a sequence keeps beside pages, whatever its length."""
    states = build_step(checkpoint, Limits(max_tokens=1, max_sequences=1, num_pages=1)).states.values()
    return sum(prod(state.shape) * SLOT_BYTES for state in states if isinstance(state, Slot))


def model_facts(checkpoint: FileCheckpoint, weight_bytes: int) -> dict[str, Any]:
    """Architecture, configuration and memory."""
    config = checkpoint.config
    return {
        "architecture": checkpoint.architecture.name,
        "config": asdict(config),
        "memory": {
            "weight_bytes": weight_bytes,
            "kv_bytes_per_1k_tokens_f16": kv_bytes(config, 1000),
            "full_context_bytes": weight_bytes + kv_bytes(config, config.context_len),
        },
    }


def tokenizer_facts(checkpoint: FileCheckpoint) -> dict[str, Any]:
    tokenizer = checkpoint.tokenizer()
    special = {k: v for k, v in asdict(tokenizer.special).items() if k not in ("end_ids", "marks")}
    return {
        "kind": tokenizer.kind,
        "vocab_size": tokenizer.vocab_size,
        "special_ids": special,
        "special_texts": {k: tokenizer.token_text(v) for k, v in special.items() if v is not None},
        "end_ids": sorted(tokenizer.special.end_ids),
        "has_channels": tokenizer.special.marks is not None,
        "adds_space_prefix": tokenizer.adds_space_prefix,
        "has_chat_template": checkpoint.chat_template() is not None,
    }


def facts(file: GgufFile | SafetensorsDir) -> dict[str, Any]:
    """All facts about a file. What is wrong beyond the file's own layout goes to "problems", one line each."""
    entries = list(file.tensors.values())
    totals: dict[str, dict[str, int]] = defaultdict(lambda: {"tensors": 0, "bytes": 0})
    for entry in entries:
        totals[entry.format]["tensors"] += 1
        totals[entry.format]["bytes"] += entry.num_bytes
    found: dict[str, Any] = {
        "path": str(file.path),
        "kind": f"GGUF version {file.version}" if isinstance(file, GgufFile) else "safetensors",
        "metadata": {k: shortened(v) for k, v in file.metadata.items()} if isinstance(file, GgufFile) else {},
        "tensors": [
            {
                "name": e.name,
                "shape": list(e.shape),
                "format": e.format,
                "bytes": e.num_bytes,
                "supported": e.is_supported,
            }
            for e in entries
        ],
        "totals": dict(totals),
        "model": None,
        "tokenizer": None,
        "problems": [],
    }
    try:
        checkpoint = describe(file)
        found["model"] = model_facts(checkpoint, sum(e.num_bytes for e in entries))
        found["tokenizer"] = tokenizer_facts(checkpoint)
        checkpoint.check()
        if checkpoint.config.recurrence:
            found["model"]["memory"]["slot_bytes_per_sequence"] = slot_bytes(checkpoint)
        if checkpoint.config.mixture:
            graph = build_step(checkpoint, Limits(max_tokens=1, max_sequences=1, num_pages=1)).graph
            found["model"]["memory"]["weight_bytes_per_token"] = reading(graph).active_bytes
    except SamebitsError as error:
        found["problems"].append(str(error))
    return found


def memory_division(path: Path, settings: EngineSettings) -> Division:
    """Return how memory would be divided, from the file's metadata. The backend is asked for its memory alone."""
    from samebits.backends.discovery import default_name, get

    found = get(settings.backend or default_name())
    checkpoint = open_checkpoint(path)
    drafting = None
    if settings.speculate is not None:
        from samebits.engine.drafts.choice import draft_checkpoint

        drafting = draft_checkpoint(settings.speculate)
    return divide(checkpoint, found, settings, policy_for(settings, found), drafting)


def inspect(
    settings: SimpleNamespace,
    model: str = flags.Argument(
        DEFAULT_MODEL, help="The model: a short name, a GGUF file, a safetensors file or folder, or an address."
    ),
    tensors: Annotated[
        bool, flags.Option("--tensors", help="List the metadata, the whole configuration and every tensor too.")
    ] = False,
    memory: Annotated[
        bool,
        flags.Option(
            "--memory",
            help="Show how the backend's memory would be divided into weights, workspace and pages, without loading "
            "anything. The options of the engine count.",
        ),
    ] = False,
    as_json: AsJson = False,
    output: Output = None,
) -> None:
    """Show what a model is and the memory it needs. --json prints everything in the file."""
    console = console_for("inspect", as_json, output=output)
    path: Path = obtain(model)
    if memory:
        division = memory_division(path, engine_settings(settings))
        emit(division.as_json(), as_json, output)
        if not as_json:
            print_division(console, division)
        return
    found = facts(open_file(path))
    emit(found, as_json, output)
    if not as_json:
        print_summary(console, found)
        if tensors:
            print_everything(console, found)
        else:
            console.print("--tensors lists the metadata and the tensors", style="dim", highlight=False)
    if found["problems"]:
        raise SamebitsError(found["problems"][0])


inspect = settings_command(inspect, without=("model", "memory", "numerics", "threads", "sampling_defaults"))
