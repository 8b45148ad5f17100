"""The tables of `samebits inspect`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from math import prod
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from samebits.debug.text import size_text
from samebits.engine.sizes import Division, sized
from samebits.models.parts.rope import PLAIN


def _safe(text: str) -> str:
    """A file's text for the terminal: no markup, no control characters."""
    return escape("".join(c if c.isprintable() else ascii(c)[1:-1] for c in text))


def _pairs(title: str | None, values: dict[str, Any]) -> Table:
    table = Table("name", "value", title=title)
    for name, value in values.items():
        table.add_row(_safe(name), _safe(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)))
    return table


def _layers(layers: Sequence[dict[str, Any]]) -> str:
    """How many there are of each kind."""
    return "; ".join(f"{count} {kind}" for kind, count in Counter(map(_layer, layers)).items())


def _layer(layer: dict[str, Any]) -> str:
    ffn = ", experts" if layer["ffn"] == "experts" else ""
    if layer["kind"] != "attention":
        return f"{layer['kind']}{ffn}"
    reach = f"over {layer['window']} positions" if layer["window"] else "over all positions"
    return f"{reach}, {layer['rope'] or 'no rotation'}{ffn}"


def _mixture(mixture: dict[str, Any] | None) -> str:
    """Experts, and how a token chooses among them."""
    if mixture is None:
        return "none"
    text = f"{mixture['top_k']} of {mixture['num_experts']} experts of {mixture['expert_size']}, {mixture['scores']}"
    if mixture["num_groups"] > 1:
        text += f", of {mixture['num_groups_kept']} of {mixture['num_groups']} groups"
    text += ", divided by their sum" if mixture["is_normalized"] else ""
    text += f", times {mixture['scale']:g}" if mixture["scale"] != 1 else ""
    gate = " with a gate" if mixture["has_shared_gate"] else ""
    return text + (f"; a shared one of {mixture['shared_size']}{gate}" if mixture["shared_size"] else "")


def _ropes(ropes: dict[str, dict[str, Any]]) -> str:
    """Each rotation, with what its scaling changes from none."""
    parts = []
    for name, rope in ropes.items():
        usual = asdict(PLAIN)
        changed = {k: v for k, v in rope["scaling"].items() if v != usual[k]}
        scaling = "".join(f", {k} {json.dumps(v)}" for k, v in changed.items())
        parts.append(f"{name}: theta {rope['theta']:g}, {rope['dims']} elements{scaling}")
    return "; ".join(parts)


def print_summary(console: Console, found: dict[str, Any]) -> None:
    """Print what people ask of a model first: its kind and size, its context, and the memory it needs."""
    console.print(f"{_safe(found['path'])}: {found['kind']}", highlight=False)
    num_elements = sum(prod(tensor["shape"]) for tensor in found["tensors"])
    name = found["metadata"].get("general.name")
    rows = ({"name": name} if isinstance(name, str) else {}) | {"parameters": f"{num_elements:,}"}
    formats = sorted(found["totals"].items(), key=lambda item: -item[1]["bytes"])
    rows["weights"] = ", ".join(f"{name} {size_text(total['bytes'])}" for name, total in formats)
    if model := found["model"]:
        config = model["config"]
        rows = {"architecture": model["architecture"], **rows}
        rows["layers"] = f"{len(config['layers'])}: {_layers(config['layers'])}"
        rows["experts"] = _mixture(config["mixture"])
        rows["context"] = f"{config['context_len']:,} tokens"
        memory = {name: size_text(num_bytes) for name, num_bytes in model["memory"].items()}
        rows["memory"] = f"{memory['weight_bytes']}, and {memory['kv_bytes_per_1k_tokens_f16']} per 1,000 tokens (f16)"
        rows["memory, whole context"] = memory["full_context_bytes"]
    if tokenizer := found["tokenizer"]:
        template = "with" if tokenizer["has_chat_template"] else "without"
        rows["tokenizer"] = f"{tokenizer['kind']}, {tokenizer['vocab_size']:,} tokens, {template} a chat template"
    if unread := [t["format"] for t in found["tensors"] if not t["supported"]]:
        rows["not supported"] = ", ".join(sorted(set(unread)))
    console.print(_pairs(None, rows))


def print_division(console: Console, division: Division) -> None:
    """Print how a device's memory would be divided, and the sizes that follow."""
    limits = division.limits
    tokens = (limits.num_pages - 1) * limits.page_size
    rows = {
        "memory": f"{sized(division.memory.total_bytes)}, {sized(division.memory.free_bytes)} free",
        "for this model": sized(division.budget_bytes),
        "weights": sized(division.weight_bytes),
        "workspace": sized(division.workspace_bytes),
    }
    if division.slot_bytes:
        rows["states in slots"] = f"{sized(division.slot_bytes)}, {limits.num_slots} slots"
    rows["pages"] = f"{sized(division.page_bytes)}, {limits.num_pages - 1:,} pages of {limits.page_size}"
    rows |= {"tokens in pages": f"{tokens:,}", "sequences at once": f"{limits.max_sequences}"}
    rows["context"] = f"{division.context_len:,} tokens"
    console.print(_pairs(None, rows))
    for note in division.notes:
        console.print(_safe(note), highlight=False)


def print_everything(console: Console, found: dict[str, Any]) -> None:
    """Print the metadata, the configuration, the tokenizer and every tensor."""
    if found["metadata"]:
        console.print(_pairs("metadata", found["metadata"]))
    table = Table("tensor", "shape", "format", "bytes", title="tensors")
    for tensor in found["tensors"]:
        note = "" if tensor["supported"] else " [red](unsupported)[/]"
        shape = " x ".join(map(str, tensor["shape"]))
        table.add_row(_safe(tensor["name"]), shape, tensor["format"] + note, f"{tensor['bytes']:,}")
    console.print(table)
    totals = {k: f"{v['tensors']} tensors, {size_text(v['bytes'])}" for k, v in found["totals"].items()}
    console.print(_pairs("by format", totals))
    if model := found["model"]:
        told = {"ropes": _ropes(model["config"]["ropes"]), "layers": _layers(model["config"]["layers"])}
        told["mixture"] = _mixture(model["config"]["mixture"])
        console.print(_pairs(f"model: {model['architecture']}", model["config"] | told))
        console.print(_pairs("memory", {k: size_text(v) for k, v in model["memory"].items()}))
    if found["tokenizer"]:
        console.print(_pairs("tokenizer", found["tokenizer"]))
