"""A model's files as one checkpoint: what its architecture makes of a configuration and of tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Protocol

import numpy as np

from samebits.core.errors import BadInput
from samebits.core.format import HostTensor, Packed
from samebits.core.numerics.elementary import exp
from samebits.core.sampling_defaults import NEUTRAL, NEUTRAL_NAME, SamplingDefaults
from samebits.core.shapes import TensorSpec
from samebits.loaders.chat import ChatTemplate
from samebits.loaders.fields import Fields
from samebits.loaders.files import (
    ModelFile,
    configuration,
    open_file,
    read_sampling,
    read_template,
    read_tokenizer,
    with_quantized,
)
from samebits.loaders.gguf import GgufFile
from samebits.loaders.integrity import check_known
from samebits.loaders.quantization import refuse_mlx
from samebits.loaders.source import TensorEntry
from samebits.loaders.tokenizer import Tokenizer
from samebits.models import ARCHITECTURES
from samebits.models.architecture import Architecture, Stored
from samebits.models.parts.builder import Limits, ModelParts, StepGraph
from samebits.models.parts.decoder import Decoder
from samebits.models.parts.keys import Source
from samebits.models.stacking import shaped, stacked
from samebits.models.unread import check_keys, check_tensors, check_tied_head, check_whole
from samebits.ops.record import FLOATS


class Checkpoint(Protocol):
    """A model's weights under our names, whatever they come from. Matrices are [out, in]."""

    @property
    def architecture(self) -> Architecture: ...

    @property
    def config(self) -> Decoder: ...

    def spec(self, name: str) -> TensorSpec | None:
        """What `tensor` would give; None for a tensor that the model does not have."""
        ...

    def tensor(self, name: str) -> HostTensor:
        """The tensor, its shape checked; may be a read-only view of the file."""
        ...

    def release(self, name: str) -> None:
        """Says that the tensor was copied elsewhere: memory that its view of the file took may go."""
        ...


def build_step(checkpoint: Checkpoint, limits: Limits) -> StepGraph:
    """The graph of one step and its states. Inputs: see `ModelParts`."""
    return checkpoint.architecture.build(ModelParts(checkpoint.config, checkpoint.spec, limits))


@dataclass(frozen=True)
class FileCheckpoint:
    """The `Checkpoint` of a GGUF file or a Hugging Face folder.

    tensors  every tensor that the model needs: our name, and where it lies
    """

    path: Path
    file: ModelFile
    architecture: Architecture
    config: Decoder
    tensors: dict[str, Stored]

    def entries(self, name: str) -> tuple[TensorEntry, ...]:
        """The file's tensors that hold ours: one, or one per expert.

        BadInput names file, tensor, what is there and what is needed.
        """
        if name not in self.tensors:
            raise BadInput(str(self.path), f"tensor {name}", "no such name", "a name of this architecture's tensors")
        stored = self.tensors[name]
        entries = tuple(self._entry(stored, part, name) for part in stored.names)
        for entry in entries:
            if entry.format != entries[0].format:
                needed = f"{entries[0].format}, as {entries[0].name} is: experts are stacked"
                raise BadInput(entry.file, f"tensor {entry.name} ({name})", entry.format, needed)
        return entries

    def _entry(self, stored: Stored, part: str, name: str) -> TensorEntry:
        entry = self.file.tensors.get(part)
        if entry is None:
            raise BadInput(str(self.path), f"tensor {part} ({name})", "nothing", f"shape {_text(stored.needed)}")
        needed = stored.needed_of(entry.is_block)
        if entry.shape != needed:
            given = f"shape {_text(entry.shape)}"
            raise BadInput(entry.file, f"tensor {part} ({name})", given, f"shape {_text(needed)}")
        return entry

    def spec(self, name: str) -> TensorSpec | None:
        if name not in self.tensors:
            return None
        stored, entries = self.tensors[name], self.entries(name)
        is_unpacked = stored.is_transposed and entries[0].format not in FLOATS
        return TensorSpec(stored.shape, "f32" if stored.is_computed or is_unpacked else entries[0].format)

    def tensor(self, name: str) -> HostTensor:
        entries, stored = self.entries(name), self.tensors[name]
        tensor = stacked(self.file, stored, entries) if stored.is_stacked else self._whole(stored, entries[0])
        if not stored.is_computed and tensor.shape == stored.shape:
            return tensor
        if isinstance(tensor, Packed):
            raise BadInput(str(self.path), f"tensor {name}", tensor.format.name, "a plain tensor")
        numbers = _computed(tensor.reshape(stored.shape), stored)
        if stored.is_decay and (numbers > 0).any():
            needed = "numbers up to 0: a state that grows has no bound"
            raise BadInput(str(self.path), f"tensor {name}", f"{numbers.max():g}", needed)
        return numbers

    def _whole(self, stored: Stored, entry: TensorEntry) -> HostTensor:
        whole = self.file.read(entry.name)
        return shaped(whole if stored.rows is None else whole[stored.rows.index()], stored)

    def release(self, name: str) -> None:
        for entry in self.entries(name):
            self.file.release(entry.name)

    def check(self) -> None:
        """Raise BadInput for the first tensor that is missing, misshapen, in an unsupported format or not read."""
        for name in self.tensors:
            for entry in self.entries(name):
                if not entry.is_supported:
                    self.file.read(entry.name)
        check_tensors(self.architecture, self.config, self.file, self.tensors.values())
        if self.config.is_tied:
            check_tied_head(self.file, self.tensors["embed"])

    def num_bytes(self, name: str) -> int:
        """Of a tensor, in the file."""
        stored, entries = self.tensors[name], self.entries(name)
        return sum(entry.num_bytes for entry in entries) * prod(stored.shape) // (prod(stored.needed) * len(entries))

    def tokenizer(self) -> Tokenizer:
        """The tokenizer that comes with the weights, with as many ids as the model has."""
        return read_tokenizer(self.file, self.config.vocab_size)

    def chat_template(self) -> ChatTemplate | None:
        """The template that comes with the weights, or None."""
        return read_template(self.file)

    def sampling_defaults(self, choice: str) -> SamplingDefaults:
        """Return the model's own values of sampling fields, or neutral ones, as `choice` says.

        Raise BadInput for a value in the model's files that cannot be meant.
        """
        return NEUTRAL if choice == NEUTRAL_NAME else read_sampling(self.file)


def describe(file: ModelFile) -> FileCheckpoint:
    """The checkpoint of an open file, its tensors not yet checked; BadInput for a model that is not ours."""
    fields, is_gguf = configuration(file), isinstance(file, GgufFile)
    architecture, config = read_config(fields, is_gguf, file.tensors)
    file = with_quantized(file, fields)
    return FileCheckpoint(file.path, file, architecture, config, architecture.tensors(config, is_gguf))


def read_config(fields: Fields, is_gguf: bool, tensors: Mapping[str, TensorEntry]) -> tuple[Architecture, Decoder]:
    """What a file says of its model, `tensors` being those it holds; BadInput for a model that is not ours."""
    if is_gguf:
        architecture = _gguf_architecture(fields)
        below = Fields(fields.values, fields.where, f"{architecture.name}.")
        config = architecture.read(Source(below, True, tensors))
        check_keys(architecture, below, is_gguf)
        return architecture, config
    refuse_mlx(fields)
    for architecture in ARCHITECTURES.values():
        if architecture.hf_whole and architecture.hf_whole[0] == fields.get("model_type"):
            text = _text_part(fields)
            config = architecture.read(Source(text, False, tensors))
            check_keys(architecture, text, is_gguf)
            check_whole(architecture, fields)
            return architecture, replace(config, hf_root=architecture.hf_whole[1])
    architecture = _hf_architecture(fields)
    config = architecture.read(Source(fields, False, tensors))
    check_keys(architecture, fields, is_gguf)
    return architecture, config


def _text_part(fields: Fields) -> Fields:
    """The text model's fields of a config.json that describes several; only the whole says whether its head is tied."""
    part, tied = fields.mapping("text_config"), fields.get("tie_word_embeddings")
    return Fields({**part.values, **({} if tied is None else {"tie_word_embeddings": tied})}, part.where)


def open_checkpoint(path: str | Path) -> FileCheckpoint:
    """The checkpoint at `path`, every tensor's presence, shape and format checked; nothing is loaded yet.

    A file of the cache whose SHA-256 is known is Damaged unless it has it.
    """
    check_known(Path(path))
    checkpoint = describe(open_file(Path(path)))
    checkpoint.check()
    return checkpoint


def _gguf_architecture(fields: Fields) -> Architecture:
    name = fields.text("general.architecture")
    if name not in ARCHITECTURES:
        raise fields.fail("general.architecture", repr(name), f"one of {', '.join(ARCHITECTURES)}")
    return ARCHITECTURES[name]


def _hf_architecture(fields: Fields) -> Architecture:
    """By model_type, or where it is absent by the name of the class."""
    by_type = {a.hf[0]: a for a in ARCHITECTURES.values()}
    by_class = {a.hf[1]: a.hf[0] for a in ARCHITECTURES.values()}
    classes = fields.get("architectures")
    named = classes[0] if isinstance(classes, list) and classes and isinstance(classes[0], str) else ""
    model_type = fields.text("model_type", by_class.get(named, named or "nothing"))
    if model_type not in by_type:
        raise fields.fail("model_type", repr(model_type), f"one of {', '.join(by_type)}")
    return by_type[model_type]


def _computed(tensor: np.ndarray, stored: Stored) -> np.ndarray:
    """The model's numbers from the file's."""
    if not stored.is_computed:
        return tensor
    numbers = tensor.astype(np.float32)
    return -exp(numbers) if stored.is_log else numbers + np.float32(stored.plus)


def _text(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))
