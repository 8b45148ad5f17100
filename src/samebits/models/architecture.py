"""The record of an architecture: everything the project knows of it, stated in one file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod
from operator import attrgetter

import numpy as np

from samebits.models.parts.builder import ModelParts, StepGraph
from samebits.models.parts.decoder import Decoder
from samebits.models.parts.ignored import Ignored
from samebits.models.parts.keys import Source

Shape = tuple[int, ...]
EXPERT = "{}"  # an expert's number, in the names of tensors


@dataclass(frozen=True)
class Rows:
    """Which rows of a file's tensor are ours, where files store several tensors as the rows of one.

    parts   the rows of each of them, in order
    taken   those that are ours, one behind another
    groups  how often the parts repeat; ours are gathered from all groups
    axis    of our tensor, along which its rows lie: 1 where experts are stacked
    """

    parts: tuple[str, ...]
    taken: tuple[int, ...]
    groups: str = "1"
    axis: int = 0


@dataclass(frozen=True)
class Weight:
    """A tensor: our name, its shape in the letters of `Decoder.dims`, and what the two kinds of files call it.

    Names of files end in ".weight" where they say nothing else. A name with "{}" stands for one tensor per expert, with
    its number there: they are stacked along our first axis.

    when           a property of the configuration without which the model has no such tensor
    rows           where both kinds of files store it among others
    hf_rows        where Hugging Face does, and GGUF does not
    gguf_shape     the shape that GGUF files store it in, where that is another one of as many elements
    hf_shape       the same of Hugging Face's
    hf_plus        added to what Hugging Face stores; GGUF stores the sum
    hf_is_log      Hugging Face stores x for -e^x; GGUF stores that
    hf_is_swapped  Hugging Face stores the last two axes the other way round; not where it is quantized in blocks, which
                   run along our last axis
    is_f32         ops read it as float32, whatever files store
    is_transposed  a stack of matrices that files store transposed, among the rows of a matrix; those in a block format
                   become float32
    bare           the files, "gguf", "hf" or "both", whose name for it does not end in ".weight"
    """

    name: str
    shape: str
    gguf: str
    hf: str
    when: str = ""
    rows: Rows | None = None
    hf_rows: Rows | None = None
    gguf_shape: str = ""
    hf_shape: str = ""
    hf_plus: float = 0.0
    hf_is_log: bool = False
    hf_is_swapped: bool = False
    is_f32: bool = False
    is_transposed: bool = False
    bare: str = ""


@dataclass(frozen=True)
class Picked:
    """`Rows` in numbers."""

    sizes: tuple[int, ...]
    taken: tuple[int, ...]
    num_groups: int
    axis: int = 0

    @property
    def num_rows(self) -> int:
        """Of the file's tensor."""
        return sum(self.sizes) * self.num_groups

    def index(self) -> slice | np.ndarray:
        """The file's rows in our order: a slice, which makes a view, where they lie side by side or evenly apart."""
        starts = np.cumsum([0, *self.sizes])
        if len(self.taken) == 1 and self.num_groups == 1:
            return slice(int(starts[self.taken[0]]), int(starts[self.taken[0] + 1]))
        if len(self.taken) == 1 and self.sizes[self.taken[0]] == 1:
            return slice(int(starts[self.taken[0]]), self.num_rows, sum(self.sizes))
        groups = np.arange(self.num_groups)[:, None] * sum(self.sizes)
        return np.concatenate([(groups + np.arange(starts[i], starts[i + 1])).ravel() for i in self.taken])


@dataclass(frozen=True)
class Stored:
    """Where a tensor of the model lies in a file: a tensor of it, some of its rows, or a tensor per expert.

    name        the file's; with "{}" in the place of an expert's number
    needed      the shape that the file's tensor must have
    rows        those of it that are ours; None for all
    is_swapped  the last two axes of a plain tensor come the other way round; `needed` is what blocks must have
    is_decay    its numbers are at most 0: a state that grows has no bound
    """

    name: str
    needed: Shape
    shape: Shape
    rows: Picked | None = None
    plus: float = 0.0
    is_log: bool = False
    is_swapped: bool = False
    is_f32: bool = False
    is_decay: bool = False
    is_transposed: bool = False

    @property
    def is_computed(self) -> bool:
        """Whether the model has other numbers than the file, or the same in float32."""
        return bool(self.plus) or self.is_log or self.is_f32

    @property
    def is_apart(self) -> bool:
        """Whether each expert has a tensor of its own."""
        return EXPERT in self.name

    @property
    def is_stacked(self) -> bool:
        """Whether ours is put together expert by expert: no view of the file's tensor would be it."""
        return self.is_apart or self.is_swapped or (self.rows is not None and self.rows.axis > 0)

    @property
    def names(self) -> tuple[str, ...]:
        """Of all tensors of the file that hold ours."""
        return tuple(self.name.replace(EXPERT, str(i)) for i in range(self.shape[0])) if self.is_apart else (self.name,)

    def needed_of(self, is_block: bool) -> Shape:
        """The shape that the file's tensor must have, in a block format or a plain one."""
        swaps = self.is_swapped and not is_block
        return (*self.needed[:-2], self.needed[-1], self.needed[-2]) if swaps else self.needed


@dataclass(frozen=True)
class Architecture:
    """One kind of model.

    name       ours, and GGUF's general.architecture
    hf         (model_type, class) of a config.json
    read       the configuration of a file
    top        tensors that a model has once
    layer      tensors of every layer; their names stand behind "layers.0.", "blk.0." and "model.layers.0."
    build      the graph of a step
    kinds      tensors that only layers of a kind have beside those, by `Layer.kind` and by `Layer.ffn`
    ignored    keys and tensors that files of this architecture hold and that change no answer
    hf_whole   (model_type, root) where a config.json holds this one as its text_config, beside models of pictures or
               sounds: names start with the root in place of "model"
    """

    name: str
    hf: tuple[str, str]
    read: Callable[[Source], Decoder]
    top: tuple[Weight, ...]
    layer: tuple[Weight, ...]
    build: Callable[[ModelParts], StepGraph]
    kinds: Mapping[str, tuple[Weight, ...]] = field(default_factory=dict)
    hf_whole: tuple[str, str] | None = None
    ignored: Ignored = Ignored()

    def tensors(self, config: Decoder, is_gguf: bool) -> dict[str, Stored]:
        """Every tensor that the model needs, by our names."""
        dims, found = config.dims(), {}
        prefixes = [("", "", "", self.top)]
        for i, layer in enumerate(config.layers):
            weights = (*self.layer, *self.kinds.get(layer.kind, ()), *self.kinds.get(layer.ffn, ()))
            prefixes.append((f"layers.{i}.", f"blk.{i}.", f"model.layers.{i}.", weights))
        for ours, gguf, hf, weights in prefixes:
            for w in weights:
                if not w.when or attrgetter(w.when)(config):
                    name = f"{gguf}{w.gguf}" if is_gguf else _rooted(f"{hf}{w.hf}", config.hf_root)
                    found[ours + w.name] = _stored(w, name, dims, is_gguf)
        return found

    def shapes(self, config: Decoder) -> dict[str, Shape]:
        """The same, and what shape each has."""
        return {name: stored.shape for name, stored in self.tensors(config, is_gguf=True).items()}


def _rooted(name: str, root: str) -> str:
    """A table's name with the root that this file has in place of "model"."""
    return f"{root}.{name.removeprefix('model.')}" if name.startswith("model.") else name


def _stored(weight: Weight, name: str, dims: Mapping[str, int], is_gguf: bool) -> Stored:
    is_whole = weight.bare in ("both", "gguf" if is_gguf else "hf") or name.endswith((".bias", ".weight"))
    name = name if is_whole else f"{name}.weight"
    shape = _sizes(weight.shape, dims)
    among = weight.rows or (None if is_gguf else weight.hf_rows)
    plus, is_log = (0.0, False) if is_gguf else (weight.hf_plus, weight.hf_is_log)
    is_swapped = weight.hf_is_swapped and not is_gguf
    needed = _sizes((weight.gguf_shape if is_gguf else weight.hf_shape) or weight.shape, dims)
    rows = None
    if among:
        sizes = tuple(_size(part, dims) for part in among.parts)
        rows = Picked(sizes, among.taken, _size(among.groups, dims), among.axis)
        needed = (*needed[: rows.axis], rows.num_rows, *needed[rows.axis + 1 :])
    if EXPERT in name:
        needed = needed[1:]
    is_decay, is_transposed = weight.hf_is_log, weight.is_transposed
    return Stored(name, needed, shape, rows, plus, is_log, is_swapped, weight.is_f32, is_decay, is_transposed)


def _sizes(shape: str, dims: Mapping[str, int]) -> Shape:
    return tuple(_size(size, dims) for size in shape.split())


def _size(product: str, dims: Mapping[str, int]) -> int:
    return prod(int(factor) if factor.isdigit() else dims[factor] for factor in product.split("*"))
