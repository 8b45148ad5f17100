"""A GGUF file, or a Hugging Face folder, as a GGUF file of another format."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from samebits.convert.from_folder import from_folder
from samebits.convert.gguf_bytes import OutTensor, u32
from samebits.convert.types import FILE_TYPES, format_for, is_kept
from samebits.convert.writing import OutFile
from samebits.core.errors import BadInput
from samebits.core.format import FORMATS
from samebits.loaders.files import open_file
from samebits.loaders.gguf import GgufFile, raw_metadata
from samebits.loaders.gguf_parts import part_names
from samebits.loaders.source import TensorEntry

QUANTIZATION_VERSION = 2  # of ggml's block formats as they are


def converted(source: Path, asked: str | None = None) -> OutFile:
    """A folder as a GGUF file: matrices in the folder's own format, or the one asked for. BadInput for a GGUF file."""
    file = open_file(source)
    if isinstance(file, GgufFile):
        raise BadInput("convert", "input", f"the GGUF file {file.path.name}", "a folder or file of safetensors")
    return _typed(from_folder(source), asked)


def quantized(source: Path, asked: str, may_requantize: bool = False) -> OutFile:
    """A model with its matrices in the format asked for; BadInput where they are quantized already, unless that may be.

    What stays in another format: see `types`.
    """
    file = open_file(source)
    whole = _from_gguf(file) if isinstance(file, GgufFile) else from_folder(source)
    if not may_requantize:
        for tensor in whole.tensors:
            is_lossy = FORMATS[tensor.format].is_block and not is_kept(tensor.name, tensor.shape)
            if is_lossy and format_for(tensor.name, tensor.shape, tensor.format, asked) != tensor.format:
                needed = "f32, f16 or bf16, or --requantize: what one format lost, another does not bring back"
                raise BadInput("quantize", f"tensor {tensor.name}", tensor.format, needed)
    return _typed(whole, asked)


def _from_gguf(file: GgufFile) -> OutFile:
    """A GGUF file as it is, or all its parts as one."""
    first = file.path.with_name(part_names(file.path.name)[0])
    metadata = {key: value for key, value in raw_metadata(first).items() if not key.startswith("split.")}
    metadata.pop("general.alignment", None)
    tensors = [_as_is(entry, file.read) for entry in file.tensors.values()]
    return OutFile(metadata, tensors, file.read, file.release)


def _as_is(entry: TensorEntry, read: Callable[[str], object]) -> OutTensor:
    if not entry.is_supported:
        read(entry.name)  # which says what is wrong
    return OutTensor(entry.name, entry.shape, entry.format)


def _typed(whole: OutFile, asked: str | None) -> OutFile:
    """The same model in the format asked for; None leaves tensors as they are."""
    if asked is None:
        return whole
    tensors = [OutTensor(t.name, t.shape, format_for(t.name, t.shape, t.format, asked)) for t in whole.tensors]
    facts = {"general.file_type": u32(FILE_TYPES[asked]), "general.quantization_version": u32(QUANTIZATION_VERSION)}
    return replace(whole, metadata={**whole.metadata, **facts}, tensors=tensors)
