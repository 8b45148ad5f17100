"""Added tokens in GGUF metadata: the white space that they strip, by keys of our own or by the name of a Phi-3."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from test_convert_vocab import QWEN2, byte_level, read_back, split, write_folder
from tokenizers import decoders, models

from samebits.convert.gguf_bytes import header, string
from samebits.convert.vocab import vocab_metadata
from samebits.core.errors import BadInput
from samebits.loaders.gguf import parse_gguf
from samebits.loaders.gguf_tokenizer import tokenizer_from_gguf
from samebits.loaders.hf_tokenizer import tokenizer_from_folder


def phi3_shaped(rstrip: list[str], lstrip: tuple[str, ...] = ()) -> tokenizers.Tokenizer:
    """SentencePiece with a space in front, whose special tokens take white space off the text beside them."""
    pairs = [("▁", "h"), ("▁h", "e"), ("l", "l"), ("▁he", "ll"), ("▁", "a"), ("▁", "▁"), ("\n", "\n")]
    texts = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), "▁", "\n", *"ehlloab,.wrdnxt"]
    texts = [*dict.fromkeys(texts), *(a + b for a, b in pairs), "<|endoftext|>", "<|user|>", "<|end|>"]
    ids = {text: i for i, text in enumerate(texts)}
    library = tokenizers.Tokenizer(models.BPE(ids, pairs, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    steps = [tokenizers.normalizers.Prepend("▁"), tokenizers.normalizers.Replace(" ", "▁")]
    library.normalizer = tokenizers.normalizers.Sequence(steps)
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    library.decoder = decoders.Sequence(steps)
    special = ("<unk>", "<s>", "</s>", "<|endoftext|>", "<|user|>", "<|end|>")
    more = [tokenizers.AddedToken(t, rstrip=t in rstrip, lstrip=t in lstrip, normalized=False) for t in special]
    library.add_special_tokens(more)
    return library


OF_PHI3 = ["</s>", "<|user|>", "<|end|>"]
STRIPPED = "<|user|>\n hello\t<|end|> \n<|user|>a <|endoftext|> a\u3000<|end|>\u3000a<|end|>\n"


def test_a_phi_3_file_strips_behind_its_special_tokens_as_in_llama_cpp(tmp_path: Path) -> None:
    """Files of Phi-3 that llama.cpp's converter wrote are known by their name alone."""
    library = phi3_shaped(OF_PHI3)
    folder = write_folder(tmp_path / "m", library, eos_token="<|endoftext|>", bos_token="<s>", unk_token="<unk>")
    metadata = vocab_metadata(folder, library.get_vocab_size())
    of_others = {key: value for key, value in metadata.items() if "samebits" not in key}
    text = STRIPPED.replace("\u3000", "\n")  # llama.cpp's white space is that of C
    for name in ("Phi-3 Mini", "some phi3"):
        assert read_back({**of_others, "general.name": string(name)}).encode(text) == library.encode(text).ids
    assert read_back({**of_others, "general.name": string("Phi 4")}).encode(text) != library.encode(text).ids


@pytest.mark.parametrize(("rstrip", "lstrip"), [(OF_PHI3, ()), (["<|end|>"], ()), ([], ("<|end|>",)), ([], ())])
def test_white_space_beside_added_tokens_is_stripped_as_in_the_folder(
    tmp_path: Path, rstrip: list[str], lstrip: tuple[str, ...]
) -> None:
    library = phi3_shaped(rstrip, lstrip)
    folder = write_folder(tmp_path / "Phi-3-m", library, eos_token="<|endoftext|>", bos_token="<s>", unk_token="<unk>")
    metadata = vocab_metadata(folder, library.get_vocab_size())
    ours = read_back(metadata)
    for text in (STRIPPED, STRIPPED[::-1], "<|end|>  ", "  <|end|>", "<|end|><|end|>\n\n<|user|>"):
        for parse in (True, False):
            theirs = tokenizer_from_folder(folder).encode(text, parse_special=parse)
            assert ours.encode(text, parse_special=parse) == theirs
    assert (b"phi-3" in metadata["general.name"].lower()) == (rstrip == OF_PHI3)


@pytest.mark.parametrize("ids", [np.array([999], np.int32), np.array([-1], np.int32), np.array([1.5], np.float32), 3])
def test_wrong_ids_of_tokens_that_strip_are_refused(tmp_path: Path, ids: Any) -> None:
    library = phi3_shaped([])
    metadata = vocab_metadata(write_folder(tmp_path / "m", library, bos_token="<s>"), library.get_vocab_size())
    file = parse_gguf(header(metadata, []), Path("x.gguf"))
    with pytest.raises(
        BadInput, match=r"x.gguf: tokenizer.samebits.rstrip_token_ids .*, but must (be|have) ids below 285"
    ):
        tokenizer_from_gguf({**file.metadata, "tokenizer.samebits.rstrip_token_ids": ids}, "x.gguf")


def test_the_name_of_a_folder_that_strips_as_phi_3_does_says_so(tmp_path: Path) -> None:
    library = phi3_shaped(OF_PHI3)
    folder = write_folder(tmp_path / "mine", library, eos_token="<|endoftext|>", bos_token="<s>", unk_token="<unk>")
    assert vocab_metadata(folder, library.get_vocab_size())["general.name"].endswith(b"phi-3 mine")


STRIPS = st.tuples(st.booleans(), st.booleans())
PIECES = ["<|end|>", "<|user|>", " ", "\n", "\u3000", "a", "<|x|>", "\n\n"]


@settings(max_examples=15)
@given(STRIPS, STRIPS, STRIPS, st.booleans(), st.lists(st.lists(st.sampled_from(PIECES), max_size=9), max_size=9))
def test_stripped_texts_are_the_librarys(
    end: tuple[bool, bool], user: tuple[bool, bool], x: tuple[bool, bool], lines: bool, texts: list[list[str]]
) -> None:
    """Whatever tokens strip on either side, beside a token that is white space itself.

    That one strips nothing in front of it: the library fails where another token strips the same characters.
    """
    library = byte_level(split(QWEN2))
    for text, (left, right) in {"<|end|>": end, "<|user|>": user, "<|x|>": x, "\n\n": (False, lines)}.items():
        library.add_tokens([tokenizers.AddedToken(text, lstrip=left, rstrip=right, normalized=False)])
    with TemporaryDirectory() as path:
        ours = read_back(vocab_metadata(write_folder(Path(path), library), 300))
    for parts in texts:
        assert ours.encode("".join(parts)) == library.encode("".join(parts)).ids


def test_tokens_that_must_be_words_are_refused(tmp_path: Path) -> None:
    library = byte_level(split(QWEN2))
    library.add_tokens([tokenizers.AddedToken("he", single_word=True)])
    with pytest.raises(
        BadInput, match="added_tokens is single_word of 'he', but must be tokens that are found inside words"
    ):
        vocab_metadata(write_folder(tmp_path / "m", library), 300)
