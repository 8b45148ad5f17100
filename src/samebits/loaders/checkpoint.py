"""A model's files as one checkpoint: architecture, hyperparameters, weights, tokenizer, chat template."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from samebits.core.errors import BadInput
from samebits.core.format import HostTensor
from samebits.core.protocols import Hyperparameters
from samebits.loaders import naming
from samebits.loaders.chat import ChatTemplate
from samebits.loaders.gguf import GgufFile, is_gguf, open_gguf
from samebits.loaders.gguf_config import read_gguf_config
from samebits.loaders.gguf_tokenizer import tokenizer_from_gguf
from samebits.loaders.hf_config import read_hf_config
from samebits.loaders.hf_tokenizer import read_hf_template, tokenizer_from_folder
from samebits.loaders.integrity import check_known
from samebits.loaders.nvfp4_dir import join_parts
from samebits.loaders.quantization import quantization_in, quantization_of
from samebits.loaders.safetensors_dir import SafetensorsDir, open_safetensors
from samebits.loaders.source import TensorEntry, read_json
from samebits.loaders.tokenizer import Tokenizer

MAX_CONFIG_BYTES = 4 << 20


@dataclass(frozen=True)
class FileCheckpoint:
    """The `Checkpoint` of a GGUF file or a Hugging Face folder.

    sources  our name -> the file's name, for every tensor the model needs
    needed   our name -> the shape the hyperparameters ask for
    """

    path: Path
    file: GgufFile | SafetensorsDir
    architecture: str
    hyperparameters: Hyperparameters
    sources: dict[str, str]
    needed: dict[str, tuple[int, ...]]

    def names(self) -> tuple[str, ...]:
        return (*self.needed, *(("head",) if self.hyperparameters.tie_embeddings else ()))

    def entry(self, name: str) -> TensorEntry:
        """Where a tensor lies; BadInput names file, tensor, what is there and what is needed."""
        if name == "head" and self.hyperparameters.tie_embeddings:
            name = "embed"
        if name not in self.sources:
            raise BadInput(str(self.path), f"tensor {name}", "no such name", "a name of this architecture's tensors")
        entry = self.file.tensors.get(self.sources[name])
        shape = "x".join(map(str, self.needed[name]))
        if entry is None:
            raise BadInput(str(self.path), f"tensor {self.sources[name]} ({name})", "nothing", f"shape {shape}")
        if entry.shape != self.needed[name]:
            given = "x".join(map(str, entry.shape))
            raise BadInput(entry.file, f"tensor {entry.name} ({name})", f"shape {given}", f"shape {shape}")
        return entry

    def tensor(self, name: str) -> HostTensor:
        return self.file.read(self.entry(name).name)

    def release(self, name: str) -> None:
        self.file.release(self.entry(name).name)

    def check(self) -> None:
        """BadInput for the first tensor that is missing, in a wrong shape or in a format that is not ours."""
        for name in self.names():
            entry = self.entry(name)
            if not entry.is_supported:
                self.file.read(entry.name)

    def tokenizer(self) -> Tokenizer:
        """The tokenizer that comes with the weights, with as many ids as the model has."""
        if isinstance(self.file, GgufFile):
            tokenizer = tokenizer_from_gguf(self.file.metadata, str(self.path))
        else:
            tokenizer = tokenizer_from_folder(_folder(self.path))
        tokenizer.fit_model(self.hyperparameters.vocab_size)
        return tokenizer

    def chat_template(self) -> ChatTemplate | None:
        """The template that comes with the weights, or None."""
        source = _template_source(self.file)
        return None if source is None else ChatTemplate(source, str(self.path))


def open_file(path: Path) -> GgufFile | SafetensorsDir:
    """The tensors at `path`: a GGUF file, a .safetensors file or a folder."""
    try:
        if path.is_dir() or (path.suffix == ".safetensors" and path.exists()):
            return open_safetensors(path)
        if is_gguf(path):
            return open_gguf(path)
    except (OSError, ValueError) as error:
        if isinstance(error, BadInput):
            raise
        raise BadInput(str(path), "file", error, "a readable file") from None
    raise BadInput(str(path), "file", "an unknown kind of file", "a GGUF file, a .safetensors file or their folder")


def describe(file: GgufFile | SafetensorsDir) -> FileCheckpoint:
    """The checkpoint of an open file, its tensors not yet checked."""
    if isinstance(file, GgufFile):
        architecture, hp = read_gguf_config(file)
        needed = naming.shapes(hp)
        sources = {name: naming.gguf_name(name) for name in needed}
    else:
        path = _folder(file.path) / "config.json"
        config = read_json(path, MAX_CONFIG_BYTES)
        architecture, hp = read_hf_config(config, str(path))
        if layout := quantization_of(config, str(path)) or quantization_in(path.parent):
            file = join_parts(file, layout)
        needed = naming.shapes(hp)
        sources = {name: naming.hf_name(name, hp.has_post_norms) for name in needed}
    return FileCheckpoint(file.path, file, architecture, hp, sources, needed)


def open_checkpoint(path: str | Path) -> FileCheckpoint:
    """The checkpoint at `path`, every tensor's presence, shape and format checked; nothing is loaded yet.

    A file of the cache whose SHA-256 is known is Damaged unless it has it.
    """
    check_known(Path(path))
    checkpoint = describe(open_file(Path(path)))
    checkpoint.check()
    return checkpoint


def _folder(path: Path) -> Path:
    return path if path.is_dir() else path.parent


def _template_source(file: GgufFile | SafetensorsDir) -> str | None:
    if isinstance(file, SafetensorsDir):
        return read_hf_template(_folder(file.path))
    source: Any = file.metadata.get("tokenizer.chat_template")
    if source is not None and not isinstance(source, str):
        raise BadInput(str(file.path), "tokenizer.chat_template", type(source).__name__, "a string")
    return source
