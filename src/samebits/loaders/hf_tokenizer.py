"""Tokenizers and chat templates from a Hugging Face folder: tokenizer.json and the files beside it."""

from __future__ import annotations

import json
import logging
from array import array
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import tokenizers

from samebits.core.errors import BadInput
from samebits.loaders.byte_level import byte_level_piece, sentence_piece
from samebits.loaders.chat import DEFAULT
from samebits.loaders.end_ids import stated_end_ids
from samebits.loaders.fields import Fields, shown
from samebits.loaders.ids_beyond import check_ids_kept, without_ids_beyond
from samebits.loaders.limits import MAX_VOCAB
from samebits.loaders.source import parse_json, read_bounded, read_json
from samebits.loaders.tokenizer import SpecialTokens, Tokenizer, find_special, library_guard, library_ids
from samebits.loaders.tokenizer_json import check_tokenizer_json

log = logging.getLogger("samebits.loaders")
MAX_TOKENIZER_BYTES = 64 << 20
MAX_CONFIG_BYTES = 4 << 20
MAX_TEMPLATES = 64
MAX_TEXT_BYTES = 1 << 20  # the library takes about a second and 200 MB for it
USUAL_GROWTH = 12.0  # of a text on its way to tokens; shorter texts where it may be more
BYTE_LEVEL = frozenset(("ByteLevel",))
SENTENCE_PIECE = frozenset(("ByteFallback", "Metaspace"))
NEEDED_NAMES = ("bos", "eos")  # of special tokens, those that prompts and answers need
TAKES_SPACE_OFF = frozenset(("Strip", "Metaspace"))


class JsonTokenizer(Tokenizer):
    """A tokenizer.json as the `tokenizers` library runs it."""

    kind = "tokenizer.json"

    def __init__(self, data: bytes, where: str, names: SpecialNames, num_ids: int = MAX_VOCAB) -> None:
        """`num_ids`: rows of the model's embedding. Tokens beyond them are left out; BadInput if texts need one."""
        content = parse_json(data, where)
        growth = check_tokenizer_json(content, where)
        self.max_text_bytes = int(MAX_TEXT_BYTES * USUAL_GROWTH / max(USUAL_GROWTH, growth))
        content, beyond = without_ids_beyond(content, num_ids, where)
        self._source = source = json.dumps(content) if beyond else _decoded(data, where)
        self._library = _build(source, where)
        vocab = self._library.get_vocab(with_added_tokens=True)
        if beyond:
            log.warning("%s: left out %d tokens with ids beyond the model's %d", where, len(beyond), num_ids)
            check_ids_kept(content, vocab, where)
            _check_fence(self._library, num_ids, where)
        size = max(vocab.values(), default=-1) + 1
        if not 1 <= size <= MAX_VOCAB:
            raise BadInput(where, "vocabulary", f"ids up to {size - 1}", f"1 to {MAX_VOCAB} tokens")
        kinds = _decoder_kinds(self._library.decoder)
        pieces = _pieces(self._library, vocab, size, _piece_function(kinds, where))
        self.adds_space_prefix = bool(kinds & TAKES_SPACE_OFF)
        added = self._library.get_added_tokens_decoder()
        controls = frozenset(i for i, token in added.items() if token.special)
        self._special_texts = names.texts()
        longest = max(map(len, [*pieces, *(token.content.encode("utf-8") for token in added.values())]))
        num_ends = size if num_ids == MAX_VOCAB else max(size, num_ids)  # the model may have rows beyond the tokens
        super().__init__(where, pieces, controls, names.find(vocab, controls, num_ends, where, beyond), longest)

    @property
    def special_texts(self) -> Mapping[str, str]:
        """As transformers passes them to templates: a name that the folder does not state is not defined there."""
        return self._special_texts

    @cached_property
    def _literal(self) -> tokenizers.Tokenizer:
        """A second one that reads special tokens as text: the library keeps that choice in the tokenizer itself."""
        library = _build(self._source, self.where)
        library.encode_special_tokens = True
        return library

    def _encode(self, text: str, add_special: bool, parse_special: bool) -> array[int]:
        library = self._library if parse_special else self._literal
        return library_ids(library, text, add_special)


class SpecialNames:
    """Which tokens begin, end and pad a text, from tokenizer_config.json and what states the end ids."""

    def __init__(self, folder: Path) -> None:
        self.config = _optional_json(folder / "tokenizer_config.json")
        self.folder = folder

    def texts(self) -> dict[str, str]:
        """Return the texts of all special tokens that have a name, for templates."""
        is_old = "added_tokens_decoder" not in self.config  # transformers reads the second file only then
        stated = self.config | (_optional_json(self.folder / "special_tokens_map.json") if is_old else {})
        named = {key: value for key, value in stated.items() if key.endswith("_token")}
        extra = stated.get("extra_special_tokens")
        named |= extra if isinstance(extra, dict) else {}
        texts = {key: value.get("content") if isinstance(value, dict) else value for key, value in named.items()}
        return {key: text for key, text in texts.items() if isinstance(text, str)}

    def find(
        self, vocab: dict[str, int], controls: frozenset[int], size: int, where: str, beyond: Mapping[str, int]
    ) -> SpecialTokens:
        """Return the special tokens among `vocab`. Those named from `beyond`, which the model lacks, are left out, and
        so are a pad and an unknown token that the vocabulary lacks.

        `size`: what end ids must be below.
        """
        named: dict[str, int | None] = {}
        for name in ("bos", "eos", "pad", "unk"):
            text = self._text(f"{name}_token")
            if text is not None and text not in vocab and text not in beyond and name in NEEDED_NAMES:
                raise BadInput(where, f"{name}_token", repr(text[:80]), "a token of the vocabulary")
            named[name] = vocab.get(text) if text is not None else None
        ends = stated_end_ids(self.folder, size, frozenset(beyond.values()))
        return find_special(vocab, controls, named, ends)

    def _text(self, key: str) -> str | None:
        """A token's text, stated plainly or as an object with "content"."""
        value = self.config.get(key)
        value = value.get("content") if isinstance(value, dict) else value
        if value is not None and not isinstance(value, str):
            raise BadInput(str(self.folder / "tokenizer_config.json"), key, type(value).__name__, "a string")
        return value


def has_tokenizer(folder: Path) -> bool:
    """Whether a folder holds a tokenizer of any kind, ours or not."""
    return any((folder / name).exists() for name in ("tokenizer.json", "tokenizer.model", "vocab.json"))


def tokenizer_from_folder(folder: Path, num_ids: int = MAX_VOCAB) -> Tokenizer:
    """Return the tokenizer of a folder with tokenizer.json. Leave out tokens whose ids the model does not have."""
    path = folder / "tokenizer.json"
    return JsonTokenizer(read_bounded(path, MAX_TOKENIZER_BYTES), str(path), SpecialNames(folder), num_ids)


def read_hf_templates(folder: Path) -> dict[str, str]:
    """Return a folder's chat templates by their names, as transformers finds them: in files of their own, else in
    tokenizer_config.json, alone or as a list."""
    default, more = folder / "chat_template.jinja", sorted(folder.glob("additional_chat_templates/*.jinja"))
    files = {**({DEFAULT: default} if default.is_file() else {}), **{path.stem: path for path in more[:MAX_TEMPLATES]}}
    if files:
        return {name: _text_of(path) for name, path in files.items()}
    config = folder / "tokenizer_config.json"
    stated = Fields(_optional_json(config), str(config))
    value = stated.get("chat_template")
    if not isinstance(value, list):
        return {} if value is None else {DEFAULT: stated.text("chat_template")}
    items = [item if isinstance(item, dict) else {} for item in value[:MAX_TEMPLATES]]
    if any(not isinstance(item.get(key), str) for item in items for key in ("name", "template")):
        raise stated.fail("chat_template", shown(value), "a text, or a list of objects with a name and a template")
    return {item["name"]: item["template"] for item in items}


def _text_of(path: Path) -> str:
    return read_bounded(path, MAX_CONFIG_BYTES).decode("utf-8", "replace")


def _optional_json(path: Path) -> dict[str, Any]:
    return read_json(path, MAX_CONFIG_BYTES) if path.is_file() else {}


def _decoded(data: bytes, where: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise BadInput(where, "text", "bytes that are not UTF-8", "a JSON document") from None


def _build(source: str, where: str) -> tokenizers.Tokenizer:
    with library_guard(where, "tokenizer", "a tokenizer.json that works"):
        library = tokenizers.Tokenizer.from_str(source)
        library.no_truncation()
        library.no_padding()
        library.encode("a", add_special_tokens=True)  # a template that names unknown tokens fails only here
    return library


def _check_fence(library: tokenizers.Tokenizer, num_ids: int, where: str) -> None:
    """Raise BadInput if the tokens put around every text include one that the model lacks."""
    if (last := max(library.encode("a", add_special_tokens=True).ids, default=0)) >= num_ids:
        raise BadInput(where, "post_processor", f"the token {last}", f"ids from 0 to {num_ids - 1}")


def _pieces(
    library: tokenizers.Tokenizer, vocab: dict[str, int], size: int, of_text: Callable[[str], bytes]
) -> list[bytes]:
    """Return the bytes of every id. Special tokens keep their own texts, by which templates name them.

    The library decodes other added tokens as it does those of the vocabulary. Where that is ByteLevel, which would take
    characters such as "é" for single bytes, they keep their texts too, as in llama.cpp.
    """
    pieces = [b""] * size
    for text, i in vocab.items():
        pieces[i] = of_text(text)
    for i, token in library.get_added_tokens_decoder().items():
        keeps_text = token.special or of_text is byte_level_piece
        pieces[i] = token.content.encode("utf-8") if keeps_text else of_text(token.content)
    return pieces


def _decoder_kinds(decoder: Any) -> set[str]:
    """The names of a decoder's steps. A Metaspace that never put a space in front has none to take off."""
    if decoder is None:
        return set()
    state = json.loads(decoder.__getstate__())
    steps = state.get("decoders", []) if state.get("type") == "Sequence" else [state]
    return {"ByteFallback" if step.get("prepend_scheme") == "never" else str(step.get("type")) for step in steps}


def _piece_function(kinds: set[str], where: str) -> Callable[[str], bytes]:
    """How the decoder turns a token's text into bytes."""
    if kinds & BYTE_LEVEL:
        return byte_level_piece
    if kinds & SENTENCE_PIECE:
        return sentence_piece
    needed = "a ByteLevel, ByteFallback or Metaspace decoder"
    raise BadInput(where, "decoder", ", ".join(sorted(kinds)) or "nothing", needed)
