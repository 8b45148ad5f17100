"""The record of an architecture: everything the project knows of it, stated in one file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from samebits.models.parts.builder import ModelParts, StepGraph
from samebits.models.parts.decoder import Decoder
from samebits.models.parts.keys import Source

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Weight:
    """A tensor: our name, its shape in the letters of `Decoder.dims`, and what the two kinds of files call it.

    Names of files end in ".weight" where they say nothing else.

    when      a property of the configuration without which the model has no such tensor
    parts     where files store several tensors as the rows of one: the rows of each of them, in order
    part      which of them this is
    hf_plus   added to what Hugging Face stores; GGUF stores the sum
    """

    name: str
    shape: str
    gguf: str
    hf: str
    when: str = ""
    parts: tuple[str, ...] = ()
    part: int = 0
    hf_plus: float = 0.0


@dataclass(frozen=True)
class Stored:
    """Where a tensor of the model lies in a file: a tensor of it, or some of its rows.

    needed  the shape that the file's tensor must have
    """

    name: str
    needed: Shape
    shape: Shape
    first_row: int = 0
    plus: float = 0.0


@dataclass(frozen=True)
class Architecture:
    """One kind of model.

    name       ours, and GGUF's general.architecture
    hf         (model_type, class) of a config.json
    read       the configuration of a file
    top        tensors that a model has once
    layer      tensors of every layer; their names stand behind "layers.0.", "blk.0." and "model.layers.0."
    build      the graph of a step
    """

    name: str
    hf: tuple[str, str]
    read: Callable[[Source], Decoder]
    top: tuple[Weight, ...]
    layer: tuple[Weight, ...]
    build: Callable[[ModelParts], StepGraph]

    def tensors(self, config: Decoder, is_gguf: bool) -> dict[str, Stored]:
        """Every tensor that the model needs, by our names."""
        dims, found = config.dims(), {}
        prefixes = [("", "", "", self.top)]
        prefixes += [(f"layers.{i}.", f"blk.{i}.", f"model.layers.{i}.", self.layer) for i in range(config.num_layers)]
        for ours, gguf, hf, weights in prefixes:
            for w in weights:
                if not w.when or getattr(config, w.when):
                    name = f"{gguf}{w.gguf}" if is_gguf else f"{hf}{w.hf}"
                    found[ours + w.name] = _stored(w, name, dims, is_gguf)
        return found

    def shapes(self, config: Decoder) -> dict[str, Shape]:
        """The same, and what shape each has."""
        return {name: stored.shape for name, stored in self.tensors(config, is_gguf=True).items()}


def _stored(weight: Weight, name: str, dims: dict[str, int], is_gguf: bool) -> Stored:
    name = name if name.endswith((".bias", ".weight")) else f"{name}.weight"
    rows, *rest = (prod(dims[letter] for letter in size.split("*")) for size in weight.shape.split())
    sizes = [dims[letter] for letter in weight.parts] or [rows]
    plus = 0.0 if is_gguf else weight.hf_plus
    return Stored(name, (sum(sizes), *rest), (rows, *rest), sum(sizes[: weight.part]), plus)
