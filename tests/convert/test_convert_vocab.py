"""Tokenizers in GGUF metadata: the default model's own comes out as its file has it, and others with their tokens."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, decoders, models, pre_tokenizers, processors

from samebits.convert.gguf_bytes import header
from samebits.convert.vocab import PROBES, pre_tokenizer, vocab_metadata
from samebits.core.errors import BadInput
from samebits.loaders import split_patterns
from samebits.loaders.byte_level import BYTE_OF_CHAR
from samebits.loaders.cache import resolve
from samebits.loaders.catalog import DEFAULT_MODEL
from samebits.loaders.files import read_template
from samebits.loaders.gguf import open_gguf, parse_gguf, raw_metadata
from samebits.loaders.gguf_tokenizer import tokenizer_from_gguf
from samebits.loaders.hf_tokenizer import tokenizer_from_folder
from samebits.loaders.pre_tokenizers import PATTERNS
from samebits.loaders.tokenizer import Tokenizer

LLAMA3, QWEN2 = split_patterns.words(r"\p{N}{1,3}"), split_patterns.words(r"\p{N}")


def read_back(metadata: dict[str, bytes]) -> Tokenizer:
    """The tokenizer that a reader of the file has."""
    file = parse_gguf(header(metadata, []), Path("x.gguf"))
    return tokenizer_from_gguf(file.metadata, "x.gguf")


def write_folder(folder: Path, library: tokenizers.Tokenizer, **config: Any) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "tokenizer.json").write_text(library.to_str())
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def byte_level(pre: Any, ignore_merges: bool = False) -> tokenizers.Tokenizer:
    """A byte-level tokenizer with some merges and two special tokens."""
    pairs = [("h", "e"), ("l", "l"), ("he", "ll"), ("1", "2"), ("12", "3"), ("Ġ", "t"), ("Ġ", "Ġ"), ("Ċ", "Ċ")]
    texts = [*BYTE_OF_CHAR, *(a + b for a, b in pairs)]
    library = tokenizers.Tokenizer(
        models.BPE({text: i for i, text in enumerate(texts)}, pairs, ignore_merges=ignore_merges)
    )
    library.pre_tokenizer, library.decoder = pre, decoders.ByteLevel()
    library.add_special_tokens(["<s>", "</s>"])
    library.add_tokens(["<tool>"])
    return library


def split(*patterns: str) -> Any:
    bytes_only = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    steps = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns]
    return pre_tokenizers.Sequence([*steps, bytes_only])


GPT2 = pre_tokenizers.ByteLevel(add_prefix_space=False)
WAYS = {
    "gpt-2": byte_level(GPT2),
    "smollm": byte_level(pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), GPT2])),
    "llama-bpe": byte_level(split(LLAMA3), ignore_merges=True),
    "glm4": byte_level(split(LLAMA3)),
    "qwen2": byte_level(split(QWEN2)),
    "qwen35": byte_level(split(split_patterns.QWEN35)),
    "gpt-4o": byte_level(split(split_patterns.GPT4O)),
    "tekken": byte_level(split(split_patterns.TEKKEN), ignore_merges=True),
    **{name: byte_level(split(*PATTERNS[name])) for name in ("deepseek-v3", "deepseek-llm", "kimi-k2")},
}


def test_every_way_that_we_read_can_be_written() -> None:
    assert set(WAYS) == set(PATTERNS)


def test_line_ends_in_a_pattern_may_stand_as_themselves(tmp_path: Path) -> None:
    library = byte_level(split(*(pattern.replace(r"\r\n", "\r\n") for pattern in split_patterns.DEEPSEEK_V3)))
    metadata = vocab_metadata(write_folder(tmp_path / "m", library), 300)
    assert metadata["tokenizer.ggml.pre"][12:].decode() == "deepseek-v3"


@pytest.mark.parametrize("way", WAYS)
def test_byte_level_tokenizers(way: str, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m", WAYS[way], bos_token="<s>", eos_token="</s>", chat_template="{{ messages }}")
    metadata = vocab_metadata(folder, 300)
    assert metadata["tokenizer.ggml.pre"][12:].decode() == way
    assert metadata["tokenizer.chat_template"].endswith(b"{{ messages }}")
    ours, theirs = read_back(metadata), tokenizer_from_folder(folder)
    for text in (*PROBES, "<s>hello<tool> 123</s>"):
        assert ours.encode(text) == theirs.encode(text)
    assert (ours.special.bos, ours.special.eos) == (theirs.special.bos, theirs.special.eos)
    assert ours.decode(ours.encode("hello 123")) == theirs.decode(theirs.encode("hello 123"))


def test_a_first_token_that_the_folder_adds_is_added(tmp_path: Path) -> None:
    library = byte_level(split(QWEN2))
    first = library.token_to_id("<s>")
    library.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", first)])
    ours = read_back(vocab_metadata(write_folder(tmp_path / "m", library, bos_token="<s>", eos_token="</s>"), 300))
    assert ours.encode("hi")[0] == first


def test_sentence_piece_tokenizers(tmp_path: Path) -> None:
    """Merges become scores, bytes for what has no token stay bytes."""
    pairs = [("▁", "h"), ("▁h", "e"), ("l", "l"), ("▁he", "ll"), ("a", "a"), ("aa", "a"), ("▁", "a"), ("▁", "▁")]
    letters = ["▁", *"ehlloab,.!123"]
    texts = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), *dict.fromkeys(letters)]
    texts += [a + b for a, b in pairs]
    model = models.BPE(
        {text: i for i, text in enumerate(texts)}, pairs, unk_token="<unk>", byte_fallback=True, fuse_unk=True
    )
    library = tokenizers.Tokenizer(model)
    library.normalizer = tokenizers.normalizers.Sequence(
        [tokenizers.normalizers.Prepend("▁"), tokenizers.normalizers.Replace(" ", "▁")]
    )
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    library.decoder = decoders.Sequence(steps)
    library.add_special_tokens(["<unk>", "<s>", "</s>"])
    library.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    folder = write_folder(tmp_path / "m", library, bos_token="<s>", eos_token="</s>", unk_token="<unk>")
    ours, theirs = read_back(vocab_metadata(folder, len(texts) + 2)), tokenizer_from_folder(folder)
    for text in ("hello aaaa aaa, 321!", "héllo", *PROBES[2:5]):
        assert ours.encode(text) == theirs.encode(text)


@pytest.mark.parametrize("way", ["first", "always", "never"])
def test_metaspace_puts_its_space_where_the_folder_does(way: str, tmp_path: Path) -> None:
    """Mistral's tokenizer.json says "first": at the start of a text alone, and not before a space."""
    pairs = [("▁", "h"), ("▁h", "e"), ("l", "l"), ("▁he", "ll"), ("▁", "a"), ("▁", "▁")]
    texts = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), "▁", *dict.fromkeys("ehlloab,.!123")]
    texts += [a + b for a, b in pairs]
    ids = {text: i for i, text in enumerate(texts)}
    library = tokenizers.Tokenizer(models.BPE(ids, pairs, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    library.pre_tokenizer = pre_tokenizers.Metaspace("▁", prepend_scheme=way, split=False)
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    library.decoder = decoders.Sequence(steps if way == "never" else [*steps, decoders.Strip(" ", 1, 0)])
    library.add_special_tokens(["<unk>", "<s>", "</s>", "[INST]"])
    folder = write_folder(tmp_path / "m", library, bos_token="<s>", eos_token="</s>", unk_token="<unk>")
    ours, theirs = read_back(vocab_metadata(folder, len(texts) + 3)), tokenizer_from_folder(folder)
    for text in ("hello", " hello", "[INST]hello", "[INST] hello[INST]he", "he[INST]", "▁a", "", *PROBES[1:5]):
        assert ours.encode(text) == theirs.encode(text) == library.encode(text, add_special_tokens=False).ids


def gemma_shaped(added: list[str], is_normalized: bool = False) -> tokenizers.Tokenizer:
    """SentencePiece without a space in front, whose runs of spaces and of line ends are added tokens, not special."""
    pairs = [("\n", "\n"), ("▁", "▁"), ("▁▁", "▁"), ("▁▁", "▁▁"), ("▁", "a"), ("l", "l"), ("▁a", "ll")]
    letters = dict.fromkeys(["▁", "\n", *"ehlloab,.!123<>/s"])
    texts = ["<pad>", "<eos>", "<bos>", "<unk>", *(f"<0x{b:02X}>" for b in range(256)), *letters]
    texts = [*texts, *(a + b for a, b in pairs)]
    texts += [text for text in added if text not in texts]
    ids = {text: i for i, text in enumerate(texts)}
    library = tokenizers.Tokenizer(models.BPE(ids, pairs, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    library.normalizer = tokenizers.normalizers.Replace(" ", "▁")
    library.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    library.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    library.add_special_tokens(["<pad>", "<eos>", "<bos>", "<unk>"])
    library.add_tokens([tokenizers.AddedToken(text, normalized=is_normalized) for text in added])
    library.post_processor = processors.TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", 2)])
    return library


@pytest.mark.parametrize(
    ("added", "is_normalized"),
    [
        *((added, flag) for added in (["▁▁"], ["▁▁", "▁▁▁", "\n\n"]) for flag in (False, True)),
        (["▁▁▁▁", "<s>", "</s>"], False),
        (["▁▁▁▁", "<s>", "</s>", "▁tag▁"], True),
    ],
)
def test_added_tokens_are_decoded_as_others_are(added: list[str], is_normalized: bool, tmp_path: Path) -> None:
    """Gemma has its runs of spaces as added tokens: they are spaces again in an answer, in folders and in files."""
    library = gemma_shaped(added, is_normalized)
    names = {"bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>", "unk_token": "<unk>"}
    folder = write_folder(tmp_path / "m", library, **names)
    theirs, ours = tokenizer_from_folder(folder), read_back(vocab_metadata(folder, library.get_vocab_size()))
    for text in added:
        token = library.token_to_id(text)
        needed = library.decode([token])
        assert "▁" not in needed
        for tokenizer in (theirs, ours):
            assert tokenizer.decode([token]) == tokenizer.stream().push(token) == needed
            assert tokenizer.decode([token], skip_special=True) == needed
    for text in ("a  all   a    l\n\n\na", "</s> <s>", "  a"):
        for tokenizer in (theirs, ours):
            assert tokenizer.decode(tokenizer.encode(text, add_special=False)) == text
        assert ours.encode(text) == theirs.encode(text) == library.encode(text).ids
    assert theirs.encode("▁▁▁▁" * 20, add_special=False, max_tokens=80)


def test_a_token_with_spaces_that_the_folder_never_finds_in_a_text_is_refused(tmp_path: Path) -> None:
    """A file's readers would find " tag ", which the folder's tokenizer reads as a word."""
    library = gemma_shaped(["▁tag▁"])
    with pytest.raises(BadInput, match="tokenizer has other tokens for"):
        vocab_metadata(write_folder(tmp_path / "m", library, bos_token="<bos>"), library.get_vocab_size())


@settings(max_examples=40)
@given(st.lists(st.sampled_from(["▁▁", "▁", "a", "é", "<tag>", "\n", "▁x▁"]), min_size=1, max_size=3))
def test_any_added_token_is_what_the_library_decodes(parts: list[str]) -> None:
    text = "".join(parts)
    library = gemma_shaped([text])
    with TemporaryDirectory() as path:
        tokenizer = tokenizer_from_folder(write_folder(Path(path), library))
    token = library.token_to_id(text)
    assert tokenizer.decode([token]) == library.decode([token])


def test_special_tokens_keep_the_texts_that_templates_name(tmp_path: Path) -> None:
    library = gemma_shaped([])
    library.add_special_tokens(["<turn▁of>"])
    folder = write_folder(tmp_path / "m", library, bos_token="<bos>", eos_token="<turn▁of>")
    for tokenizer in (tokenizer_from_folder(folder), read_back(vocab_metadata(folder, library.get_vocab_size()))):
        text = tokenizer.token_text(tokenizer.special.eos)
        assert text == "<turn▁of>"
        assert tokenizer.encode(text, add_special=False) == [tokenizer.special.eos]


def test_the_default_models_tokenizer_comes_out_as_its_file_has_it(tmp_path: Path) -> None:
    try:
        path = resolve(DEFAULT_MODEL)
    except BadInput as error:
        pytest.skip(f"the default model is not here: {error}")
    stored, raw = open_gguf(path), raw_metadata(path)
    texts, types = list(stored.metadata["tokenizer.ggml.tokens"]), stored.metadata["tokenizer.ggml.token_type"]
    merges = [tuple(merge.split(" ")) for merge in stored.metadata["tokenizer.ggml.merges"]]
    library = tokenizers.Tokenizer(models.BPE({text: i for i, text in enumerate(texts)}, merges))
    library.pre_tokenizer = WAYS["smollm"].pre_tokenizer
    library.decoder = decoders.ByteLevel()
    library.add_special_tokens([texts[i] for i in np.flatnonzero(types == 3)])
    named = {key: texts[stored.metadata[f"tokenizer.ggml.{key}_token_id"]] for key in ("bos", "eos")}
    folder = write_folder(tmp_path / "m", library, **{f"{key}_token": text for key, text in named.items()})
    metadata = vocab_metadata(folder, len(texts))
    for key in ("model", "pre", "tokens", "token_type", "merges", "bos_token_id", "eos_token_id"):
        assert metadata[f"tokenizer.ggml.{key}"] == raw[f"tokenizer.ggml.{key}"], key


def test_every_template_is_kept(tmp_path: Path) -> None:
    """Under the keys that gguf-py writes, and read from there by their names."""
    named = {"default": "D {{ bos_token }}", "tool_use": "T {{ tools }}", "my rag": "R"}
    stated = [{"name": name, "template": source} for name, source in named.items()]
    folder = write_folder(tmp_path / "m", WAYS["qwen2"], bos_token="<s>", eos_token="</s>", chat_template=stated)
    metadata = vocab_metadata(folder, 300)
    file = parse_gguf(header(metadata, []), Path("x.gguf"))
    assert file.metadata["tokenizer.chat_template"] == "D {{ bos_token }}"
    assert list(file.metadata["tokenizer.chat_templates"]) == ["my_rag", "tool_use"]
    assert file.metadata["tokenizer.chat_template.my_rag"] == "R"
    template = read_template(file)
    assert template is not None
    assert (template.source, template.for_tools.source) == ("D {{ bos_token }}", "T {{ tools }}")
    file.metadata["tokenizer.chat_template.tool_use"] = 3
    with pytest.raises(BadInput, match=r"x.gguf: tokenizer.chat_template.tool_use is int, but must be a string"):
        read_template(file)


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (
            [{"name": "a b", "template": "x"}, {"name": "a-b", "template": "y"}],
            "the names 'a-b' and 'a b', but must have one",
        ),
        ("{{ image_token }}", "chat_template is one that reads image_token, but must be bos_token, eos_token"),
    ],
)
def test_templates_that_a_file_cannot_hold_are_refused(tmp_path: Path, template: Any, message: str) -> None:
    names = {"bos_token": "<s>", "eos_token": "</s>", "image_token": "<tool>"}
    folder = write_folder(tmp_path / "m", WAYS["qwen2"], **names, chat_template=template)
    with pytest.raises(BadInput, match=message):
        vocab_metadata(folder, 300)


SPECIAL = ("<s>", "</s>", "<|endoftext|>", "<|user|>", "<|observation|>", "<|end|>", "<|x|>", "<|y|>")
UNUSUAL = {"<s>", "<|user|>", "<|observation|>", "<|x|>", "<|y|>"}  # ends that are known by no text


@settings(max_examples=40)
@given(st.sets(st.sampled_from(SPECIAL)), st.sampled_from([None, *SPECIAL[1:3]]))
def test_no_end_of_an_answer_is_lost(ends: set[str], eos: str | None) -> None:
    """A file ends answers wherever its folder does, or it is not written: GGUF has keys for three ends, of which this
    vocabulary takes eot for its "<|end|>"."""
    library = byte_level(split(LLAMA3))
    library.add_special_tokens(list(SPECIAL))
    stated = {"eos_token_id": [library.token_to_id(text) for text in sorted(ends)]}
    with TemporaryDirectory() as path:
        folder = write_folder(Path(path), library, **({} if eos is None else {"eos_token": eos}))
        (folder / "generation_config.json").write_text(json.dumps(stated))
        needed = tokenizer_from_folder(folder).special.end_ids
        if len(ends & UNUSUAL) > (2 if eos is None else 1):
            with pytest.raises(BadInput, match="ids without a usual text, but must have at most"):
                vocab_metadata(folder, 300)
        else:
            assert read_back(vocab_metadata(folder, 300)).special.end_ids == needed


def test_the_ends_of_glm_are_named_as_in_llama_cpps_files(tmp_path: Path) -> None:
    library = byte_level(split(LLAMA3))
    library.add_special_tokens(list(SPECIAL[2:5]))
    ids = [library.token_to_id(text) for text in SPECIAL[2:5]]
    folder = write_folder(tmp_path / "m", library, eos_token="<|endoftext|>")
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": ids}))
    file = parse_gguf(header(vocab_metadata(folder, 300), []), Path("x.gguf"))
    assert [file.metadata[f"tokenizer.ggml.{key}_token_id"] for key in ("eos", "eot", "eom")] == ids


def test_ways_without_a_name_are_refused(tmp_path: Path) -> None:
    several = (split(*split_patterns.DEEPSEEK_V3[:2]), split(LLAMA3, QWEN2))
    for odd in (split(r"\s+"), split(split_patterns.TEKKEN), *several):
        with pytest.raises(BadInput, match=r"pre_tokenizer is .*, but must be one that GGUF files have a name for"):
            vocab_metadata(write_folder(tmp_path / "m", byte_level(odd)), 300)
    with pytest.raises(BadInput):
        pre_tokenizer({"model": {}, "pre_tokenizer": None}, "x")


def test_a_tokenizer_that_the_metadata_does_not_give_is_refused(tmp_path: Path) -> None:
    library = byte_level(split(QWEN2))
    library.normalizer = tokenizers.normalizers.Lowercase()
    with pytest.raises(
        BadInput, match=r"tokenizer has other tokens for .Hello, world.*, but must have one that a GGUF file"
    ):
        vocab_metadata(write_folder(tmp_path / "m", library), 300)
