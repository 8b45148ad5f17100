"""A model's files, whatever model it is: its configuration, its tensors, its tokenizer and its chat template."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from samebits.core.errors import BadInput
from samebits.core.sampling_defaults import SamplingDefaults
from samebits.loaders.chat import DEFAULT, TOOLS, ChatTemplate
from samebits.loaders.end_ids import stated_end_ids
from samebits.loaders.fields import Fields
from samebits.loaders.gguf import GgufFile, is_gguf
from samebits.loaders.gguf_parts import open_gguf_model, part_names
from samebits.loaders.gguf_tokenizer import tokenizer_from_gguf
from samebits.loaders.no_tokenizer import NoTokenizer, special_of
from samebits.loaders.quantization import QUANT_FILE, quantization_in, quantization_of
from samebits.loaders.safetensors_dir import INDEX, SINGLE, SafetensorsDir, open_safetensors
from samebits.loaders.source import read_json
from samebits.loaders.stated_sampling import folder_defaults, gguf_defaults
from samebits.loaders.tokenizer import SpecialTokens, Tokenizer

MAX_CONFIG_BYTES = 4 << 20
MAX_SHOWN = 8
ModelFile = GgufFile | SafetensorsDir
CONFIG_FILES = ("config.json", QUANT_FILE)
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "generation_config.json")
MORE_TEMPLATES = "additional_chat_templates/*.jinja"  # each named by its file
TEMPLATE_KEY = "tokenizer.chat_template"
Facts = dict[str, list[int]]  # by the file's name in its folder: its size in bytes, and when it was written, in ns


def open_file(path: Path) -> ModelFile:
    """The tensors at `path`: a GGUF file or any part of one, a .safetensors file, or a folder of either."""
    try:
        path = _one_gguf(path) or path
        if path.is_dir() or (path.suffix == ".safetensors" and path.exists()):
            return open_safetensors(path)
        if is_gguf(path):
            return open_gguf_model(path)
    except (OSError, ValueError) as error:
        if isinstance(error, BadInput):
            raise
        raise BadInput(str(path), "file", error, "a readable file") from None
    raise BadInput(str(path), "file", "an unknown kind of file", "a GGUF file, a .safetensors file or their folder")


def _one_gguf(path: Path) -> Path | None:
    """The GGUF file, or the first part of it, that a folder without safetensors holds; BadInput for several."""
    if not path.is_dir() or (path / SINGLE).exists() or (path / INDEX).exists():
        return None
    found = {part_names(entry.name)[0] for entry in path.iterdir() if entry.suffix == ".gguf"}
    if len(found) > 1:
        shown = ", ".join(sorted(found)[:MAX_SHOWN]) + (" and others" if len(found) > MAX_SHOWN else "")
        raise BadInput(str(path), "folder", f"{len(found)} GGUF models", f"one of them: {shown}")
    return path / found.pop() if found else None


def configuration(file: ModelFile) -> Fields:
    """What a file says of its model: GGUF metadata, or the folder's config.json."""
    if isinstance(file, GgufFile):
        return Fields(file.metadata, str(file.path))
    path = folder_of(file.path) / "config.json"
    return Fields(read_json(path, MAX_CONFIG_BYTES, may_be_infinite=True), str(path))


def with_quantized(file: ModelFile, config: Fields) -> ModelFile:
    """The same file, tensors that a quantization stores in parts joined; BadInput for one that is not ours."""
    if isinstance(file, GgufFile):
        return file
    layout = quantization_of(config.values, config.where) or quantization_in(folder_of(file.path))
    if layout is None:
        return file
    from samebits.loaders.mxfp4_dir import join_mxfp4
    from samebits.loaders.nvfp4_dir import join_nvfp4

    return join_mxfp4(file) if layout == "mxfp4" else join_nvfp4(file, layout)


def read_tokenizer(file: ModelFile, num_ids: int) -> Tokenizer:
    """The tokenizer that comes with the weights of a model of so many ids, or what stands for one where none does."""
    tokenizer = _tokenizer(file, num_ids)
    tokenizer.fit_model(num_ids)
    return tokenizer


def _tokenizer(file: ModelFile, num_ids: int) -> Tokenizer:
    if isinstance(file, GgufFile):
        if any(key.startswith("tokenizer.ggml.") for key in file.metadata):
            return tokenizer_from_gguf(file.metadata, str(file.path))
        return NoTokenizer(str(file.path), SpecialTokens())
    from samebits.loaders.hf_tokenizer import has_tokenizer, tokenizer_from_folder

    folder = folder_of(file.path)
    return (
        tokenizer_from_folder(folder, num_ids)
        if has_tokenizer(folder)
        else NoTokenizer(str(folder), special_of(stated_end_ids(folder)))
    )


def read_template(file: ModelFile) -> ChatTemplate | None:
    """The chat template that comes with the weights, or None."""
    sources = read_templates(file)
    if DEFAULT not in sources:
        return None
    return ChatTemplate(sources[DEFAULT], str(file.path), sources.get(TOOLS))


def folder_of(path: Path) -> Path:
    """The folder in which a model's files lie."""
    return path if path.is_dir() else path.parent


def read_templates(file: ModelFile) -> dict[str, str]:
    """Return the texts of the chat templates that come with the weights, by their names."""
    if isinstance(file, SafetensorsDir):
        from samebits.loaders.hf_tokenizer import read_hf_templates

        return read_hf_templates(folder_of(file.path))
    found: dict[str, str] = {}
    for key, source in file.metadata.items():
        if key == TEMPLATE_KEY or key.startswith(f"{TEMPLATE_KEY}."):
            if not isinstance(source, str):
                raise BadInput(str(file.path), key, type(source).__name__, "a string")
            found[key.removeprefix(f"{TEMPLATE_KEY}.") if key != TEMPLATE_KEY else DEFAULT] = source
    return found


def read_sampling(file: ModelFile) -> SamplingDefaults:
    """Return the values of sampling fields that the model's makers recommend. Raise BadInput for a wrong value."""
    if isinstance(file, GgufFile):
        return gguf_defaults(file.metadata, str(file.path))
    return folder_defaults(folder_of(file.path))


def template_files(folder: Path) -> list[str]:
    """Return the names of files that only chat templates need, whether the folder has them or not."""
    return [
        "chat_template.jinja",
        "special_tokens_map.json",
        *sorted(str(path.relative_to(folder)) for path in folder.glob(MORE_TEMPLATES)),
    ]


def facts_of(file: ModelFile) -> Facts:
    """What tells whether the files of a model are still the ones that were opened."""
    folder = folder_of(file.path)
    beside = () if isinstance(file, GgufFile) else (*CONFIG_FILES, *TOKENIZER_FILES, *template_files(folder))
    paths = [*weight_files(file), *(folder / name for name in beside if (folder / name).is_file())]
    return stated(folder, [str(path.relative_to(folder)) for path in paths])


def weight_files(file: ModelFile) -> list[Path]:
    """The files that hold tensors, by name."""
    return sorted({Path(entry.file) for entry in file.tensors.values()})


def stated(folder: Path, names: Iterable[str]) -> Facts:
    """The same of files by name, as they are now; OSError where one is missing."""
    return {name: [stat.st_size, stat.st_mtime_ns] for name in names for stat in [os.stat(folder / name)]}
