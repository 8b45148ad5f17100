"""A folder's tokenizer as GGUF metadata: tokens, types, merges or scores, the way words are cut, and the chat template.

What is written is read again and compared with the folder's own tokenizer on texts of many kinds: a tokenizer that
GGUF cannot hold is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from samebits.convert.added import metaspace_metadata, name_for_readers, strip_metadata, texts_with
from samebits.convert.gguf_bytes import F32, I32, boolean, numbers, string, strings, u32
from samebits.convert.templates import template_metadata
from samebits.core.errors import BadInput
from samebits.loaders import split_patterns
from samebits.loaders.byte_level import SPACE_MARK, byte_token_value
from samebits.loaders.gguf_tokenizer import tokenizer_from_gguf
from samebits.loaders.gguf_vocab import BYTE, CONTROL, NORMAL, PREFIX, UNKNOWN, UNUSED, USER_DEFINED
from samebits.loaders.hf_tokenizer import MAX_TOKENIZER_BYTES, has_tokenizer, read_hf_templates, tokenizer_from_folder
from samebits.loaders.ids_beyond import without_ids_beyond
from samebits.loaders.pre_tokenizers import PATTERNS
from samebits.loaders.source import read_json
from samebits.loaders.texts import texts_of
from samebits.loaders.tokenizer import Tokenizer, find_special

PROBES = (
    "Hello, world! It's a test; don't you think they'LL agree? I'd SAY so.",
    "  two spaces,\ttabs\t\tand\n\nnew lines \r\n at   the end   ",
    "1234567890 3.14159 x1y22z333 2024-11-16T12:34:56Z $1,000.00 ½ ²",
    "def f(x: int) -> int:\n    return x**2 + {'a': [1, 2]}['a'][0]  # ok\n\n\n",
    "Zürich naïve café Ærøskøbing Łódź İstanbul ß",
    "Привет, мир! Γεια. שלום עולם. مرحبا بالعالم. नमस्ते दुनिया",
    "日本語のテキスト、漢字とかな。 中文文本没有空格。 한국어 텍스트입니다.",
    "emoji 😀👩‍👩‍👧‍👦🇨🇭 and “quotes” — dashes … …",
    "CamelCaseWords HTTPServer iPhone snake_case_word kebab-case/and\\slashes",
    "",
    " ",
    "a",
)


def vocab_metadata(folder: Path, num_ids: int) -> dict[str, bytes]:
    """Return the keys below tokenizer. for a model of `num_ids`, and the model's name, by which llama.cpp knows some
    tokenizers. Raise BadInput for a tokenizer that GGUF cannot hold. A folder that holds none gets "no_vocab"."""
    if not has_tokenizer(folder):
        return {f"{PREFIX}model": string("no_vocab")}
    tokenizer = tokenizer_from_folder(folder, num_ids)
    tokenizer.fit_model(num_ids)
    path = folder / "tokenizer.json"
    source, _ = without_ids_beyond(read_json(path, MAX_TOKENIZER_BYTES), num_ids, str(path))
    added = source.get("added_tokens") or []
    values = {PREFIX + key: value for key, value in _values(source, tokenizer, num_ids, str(folder)).items()}
    values |= strip_metadata(added, str(folder)) | metaspace_metadata(source)
    values["general.name"] = name_for_readers(folder.resolve().name, added)
    ours = _check(values, tokenizer, (*PROBES, *texts_with(added, values[f"{PREFIX}model"] == "llama")), str(folder))
    values |= template_metadata(read_hf_templates(folder), tokenizer, ours, str(folder))
    return {key: _as_bytes(value) for key, value in values.items()}


def _values(source: Mapping[str, Any], tokenizer: Tokenizer, num_ids: int, where: str) -> dict[str, Any]:
    """The metadata as values, below tokenizer.ggml."""
    model, added = source["model"], source.get("added_tokens") or []
    texts = [f"[PAD{i}]" for i in range(num_ids)]
    types = np.full(num_ids, UNUSED)
    for text, i in model["vocab"].items():
        texts[i], types[i] = text, NORMAL
    for token in added:
        texts[token["id"]] = token["content"]
        types[token["id"]] = CONTROL if token.get("special") else USER_DEFINED
    merges = [" ".join(merge) if isinstance(merge, list) else merge for merge in model["merges"]]
    is_scored = bool(model.get("byte_fallback"))
    values: dict[str, Any] = {"model": "llama" if is_scored else "gpt2"}
    if is_scored:
        _mark_spaces(added, merges, texts, types)
        for i, text in enumerate(texts):
            if types[i] == NORMAL and byte_token_value(text) is not None:
                types[i] = BYTE
        if (unknown := model.get("unk_token")) is not None and unknown in model["vocab"]:
            types[model["vocab"][unknown]] = UNKNOWN
        values |= {"scores": _scores(texts, merges), "add_space_prefix": _adds_space(tokenizer)}
    else:
        values |= {"pre": pre_tokenizer(source, where), "merges": merges}
    return {**values, "tokens": texts, "token_type": types, **_special(tokenizer, where)}


def _mark_spaces(added: Sequence[Mapping[str, Any]], merges: list[str], texts: list[str], types: np.ndarray) -> None:
    """Change texts and types of added tokens such as Gemma's "▁▁" so that they are read as the spaces they stand for.

    Readers show a user-defined token as it stands, and a normal one with spaces. A token that merges give for spaces is
    a normal one, unless the folder finds it before merges; any other is written with spaces, as in llama.cpp.
    """
    joins = {merge.replace(" ", "") for merge in merges}
    for token in added:
        i, text = token["id"], token["content"]
        if types[i] != USER_DEFINED or SPACE_MARK not in text:
            continue
        if text in joins and not token.get("normalized"):
            types[i] = NORMAL
        else:
            texts[i] = text.replace(SPACE_MARK, " ")


def _adds_space(tokenizer: Tokenizer) -> bool:
    return bool(getattr(tokenizer, "adds_space_prefix", False))


def _scores(texts: list[str], merges: list[str]) -> np.ndarray:
    """What SentencePiece merges by: the earlier a merge, the higher its join's score."""
    ranks: dict[str, int] = {}
    for rank, merge in enumerate(merges):
        left, _, right = merge.partition(" ")
        ranks.setdefault(left + right, rank)
    return np.array([-float(ranks[text] + 1) if text in ranks else -1e6 for text in texts], np.float32)


def _special(tokenizer: Tokenizer, where: str) -> dict[str, Any]:
    special = tokenizer.special
    ids = {"bos": special.bos, "padding": special.pad, "unknown": special.unk, **_ends(tokenizer, where)}
    found: dict[str, Any] = {f"{name}_token_id": i for name, i in ids.items() if i is not None}
    fenced = tokenizer.encode("a")
    found["add_bos_token"] = special.bos is not None and fenced[:1] == [special.bos]
    found["add_eos_token"] = special.eos is not None and fenced[-1:] == [special.eos]
    return found


def _ends(tokenizer: Tokenizer, where: str) -> dict[str, int | None]:
    """Return the ids of GGUF's three keys for ends: eos, eot and eom. Readers know further ends by their texts alone.

    An eot that only repeats the eos gives way to another end, as in llama.cpp's files of GLM. Raise BadInput for more
    ends than the keys hold.
    """
    special = tokenizer.special
    by_text = {tokenizer.token_text(i): i for i in tokenizer.control_ids}
    named = {"eos": special.eos, "eot": special.eot}
    known = find_special(by_text, tokenizer.control_ids, named).end_ids
    missing, found = sorted(special.end_ids - known), {**named, "eom": None}
    free = [name for name, i in found.items() if i is None or (name == "eot" and i == special.eos)]
    if len(missing) > len(free):
        needed = f"at most {len(free)}: a GGUF file has keys for eos, eot and eom"
        raise BadInput(where, "eos_token_id", f"{len(missing)} ids without a usual text", needed)
    return {**found, **dict(zip(free, missing, strict=False))}


def pre_tokenizer(source: Mapping[str, Any], where: str) -> str:
    """GGUF's name for the way a byte-level tokenizer.json cuts words; BadInput for one that has none."""
    part = source.get("pre_tokenizer") or {}
    steps = part.get("pretokenizers", [part]) if part.get("type") == "Sequence" else [part]
    patterns = [str((step.get("pattern") or {}).get("Regex")) for step in steps if step.get("type") == "Split"]
    has_digits = any(step.get("type") == "Digits" and step.get("individual_digits") for step in steps)
    uses_gpt2 = any(step.get("type") == "ByteLevel" and step.get("use_regex", True) for step in steps)
    takes_whole = bool(source["model"].get("ignore_merges"))
    if not patterns and uses_gpt2:
        return "smollm" if has_digits else "gpt-2"
    known = {
        (split_patterns.words(r"\p{N}{1,3}"),): "llama-bpe" if takes_whole else "glm4",
        (split_patterns.words(r"\p{N}"),): "qwen2",
        (split_patterns.QWEN35,): "qwen35",
        (split_patterns.GPT4O,): "gpt-4o",
        (split_patterns.TEKKEN,): "tekken" if takes_whole else None,
        **{PATTERNS[name]: name for name in ("deepseek-v3", "deepseek-llm", "kimi-k2")},
    }
    name = known.get(tuple(pattern.replace("\r\n", r"\r\n") for pattern in patterns))
    if name is None or uses_gpt2 or has_digits:
        raise BadInput(where, "pre_tokenizer", patterns[:2] or part.get("type"), "one that GGUF files have a name for")
    return name


def _check(values: Mapping[str, Any], tokenizer: Tokenizer, probes: Iterable[str], where: str) -> Tokenizer:
    """Return the metadata's tokenizer. Raise BadInput unless it gives the folder's tokens for the probes."""
    keys = (f"{PREFIX}tokens", f"{PREFIX}merges")
    ours = tokenizer_from_gguf({**values, **{key: texts_of(values[key]) for key in keys if key in values}}, where)
    for text in probes:
        if ours.encode(text) != tokenizer.encode(text):
            raise BadInput(where, "tokenizer", f"other tokens for {text[:40]!r}", "one that a GGUF file can hold")
    if lost := sorted(tokenizer.special.end_ids - ours.special.end_ids):
        raise BadInput(where, "eos_token_id", f"{lost[:8]}, no ends there", "ends that a GGUF file can hold")
    return ours


def _as_bytes(value: Any) -> bytes:
    if isinstance(value, bool):
        return boolean(value)
    if isinstance(value, int):
        return u32(value)
    if isinstance(value, str):
        return string(value)
    if isinstance(value, np.ndarray):
        return numbers(value, F32 if value.dtype.kind == "f" else I32)
    return strings(value)
