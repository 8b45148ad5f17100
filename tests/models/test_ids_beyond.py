"""A tokenizer.json with tokens beyond the model's embedding: no text becomes one of them, and none is drawn."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from checkpoint_runs import DATA
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Library
from tokenizers import decoders, models, pre_tokenizers, processors

from samebits import LLM, SamplingParams
from samebits.convert.gguf_bytes import header
from samebits.convert.vocab import vocab_metadata
from samebits.core.errors import BadInput
from samebits.loaders import Tokenizer
from samebits.loaders.gguf import parse_gguf
from samebits.loaders.gguf_tokenizer import tokenizer_from_gguf
from samebits.loaders.hf_tokenizer import tokenizer_from_folder
from samebits.models.checkpoint import open_checkpoint

NUM_IDS = 96  # of the tiny model
IMAGE, TOOL = "<image_soft_token>", "<tool>"
LETTERS = [*"abcdefghijklmnopqrstuvwxyz<>_/123 ".replace(" ", "Ġ")]
MERGES = [("h", "i"), ("Ġ", "hi"), ("x", "y"), ("xy", "z"), ("Ġhi", "xyz")]


def content(texts: list[str], added: dict[str, tuple[int, bool]], **changes: Any) -> dict[str, Any]:
    """A byte-level tokenizer.json with the `texts` at the last ids, and added tokens by text: id, whether special."""
    whole = [*LETTERS, *(a + b for a, b in MERGES if a + b not in texts)]
    vocab = {text: i for i, text in enumerate(whole)}
    vocab |= {f"[fill{i}]": i for i in range(len(vocab), NUM_IDS - 2)} | {"<s>": NUM_IDS - 2, "</s>": NUM_IDS - 1}
    vocab |= {text: NUM_IDS + i for i, text in enumerate(texts)}
    library = Library(models.BPE(vocab, MERGES))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    library.add_special_tokens(["<s>", "</s>"])
    library.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", NUM_IDS - 2)])
    found = dict(json.loads(library.to_str()))
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    found["added_tokens"] += [{"id": i, "content": t, "special": s, **flags} for t, (i, s) in added.items()]
    return found | changes


def folder_with(path: Path, whole: dict[str, Any], **config: Any) -> Path:
    """The tiny Llama with this tokenizer."""
    shutil.copytree(DATA / "llama", path, ignore=shutil.ignore_patterns("*.gguf", "*.npz"))
    (path / "tokenizer.json").write_text(json.dumps(whole))
    (path / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": "</s>"} | config))
    return path


WHOLES = {
    "one special token": content([], {IMAGE: (NUM_IDS, True)}),
    "one that is none": content([], {IMAGE: (NUM_IDS, False)}),
    "in the vocabulary too": content([IMAGE], {IMAGE: (NUM_IDS, True)}),
    "several": content([], {IMAGE: (NUM_IDS, True), TOOL: (NUM_IDS + 1, False)}),
    "far beyond": content([], {IMAGE: (NUM_IDS + 5000, True)}),
    "the join of a merge": content(["Ġhixyz"], {}),
    "a part of a merge": content(["xyz", "Ġhixyz"], {IMAGE: (NUM_IDS + 2, True)}),
}


def both(folder: Path) -> list[Tokenizer]:
    """The folder's tokenizer, and the one of the GGUF file that is converted from it."""
    stored = parse_gguf(header(vocab_metadata(folder, NUM_IDS), []), Path("x.gguf")).metadata
    return [open_checkpoint(folder).tokenizer(), tokenizer_from_gguf(stored, "x.gguf")]


@pytest.mark.parametrize("name", WHOLES)
def test_no_text_becomes_an_id_that_the_model_lacks(name: str, tmp_path: Path) -> None:
    """llama.cpp's conversion leaves such tokens out, so that their texts are plain text; transformers encodes them as
    ids at which its embedding then fails. Here transformers is not run: this is what its sources say."""
    texts = st.lists(st.sampled_from([IMAGE, TOOL, " hixyz", "xyz", " ", "hi", "<s>", "a", "é"]), max_size=6)
    found = both(folder_with(tmp_path / "m", WHOLES[name]))

    @given(texts.map("".join), st.booleans(), st.booleans())
    def check(text: str, add_special: bool, parse_special: bool) -> None:
        for tokenizer in found:
            assert all(0 <= i < NUM_IDS for i in tokenizer.encode(text, add_special, parse_special))

    check()
    for tokenizer in found:
        assert tokenizer.vocab_size == tokenizer.num_ids == NUM_IDS
        assert max(tokenizer.control_ids | tokenizer.special.end_ids) < NUM_IDS
        assert tokenizer.decode(tokenizer.encode(f"hi{IMAGE} hixyz"), skip_special=True) == f"hi{IMAGE} hixyz"
        assert tokenizer.encode("hi") == [NUM_IDS - 2, LETTERS.index("Ġ") + 1]
        assert tokenizer.control_id(IMAGE) is None
        with pytest.raises(BadInput, match=f"token id is {NUM_IDS}, but must be from 0 to {NUM_IDS - 1}"):
            tokenizer.decode([NUM_IDS])


def test_requests_that_name_one_are_refused_and_none_is_drawn(tmp_path: Path) -> None:
    llm = LLM(folder_with(tmp_path / "m", WHOLES["one special token"]), backend="reference")
    (answer,) = llm.generate([f"hi{IMAGE}"], SamplingParams(max_tokens=16, temperature=5.0, seed=1, ignore_eos=True))
    assert max(answer.token_ids) < NUM_IDS
    for use in (llm.generate, llm.score, llm.embed, llm.tokenizer.decode):
        with pytest.raises(BadInput, match=f"token id is {NUM_IDS}, but must be from 0 "):
            use([NUM_IDS])  # type: ignore[operator]
    for params in ({"logit_bias": {NUM_IDS: 1.0}}, {"stop_token_ids": (NUM_IDS,)}):
        with pytest.raises(BadInput, match=f"token {NUM_IDS}, but must have ids from 0 to {NUM_IDS - 1}"):
            llm.generate(["hi"], SamplingParams(max_tokens=1, **params))


def test_names_of_such_tokens_mean_nothing(tmp_path: Path) -> None:
    """A pad token that was added behind the vocabulary is common, and an id of generation_config.json may be one."""
    folder = folder_with(tmp_path / "m", WHOLES["one special token"], pad_token=IMAGE, eos_token=IMAGE)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [NUM_IDS - 1, NUM_IDS]}))
    for tokenizer in both(folder):
        assert (tokenizer.special.pad, tokenizer.special.eos) == (None, None)
    assert open_checkpoint(folder).tokenizer().special.end_ids == {NUM_IDS - 1}


def test_a_tokenizer_whose_every_text_needs_one_is_refused(tmp_path: Path) -> None:
    begins = processors.TemplateProcessing(single=f"{IMAGE} $A", special_tokens=[(IMAGE, NUM_IDS)])
    library = Library.from_str(json.dumps(WHOLES["one special token"]))
    library.post_processor = begins
    folder = folder_with(tmp_path / "m", json.loads(library.to_str()))
    with pytest.raises(
        BadInput, match=f"post_processor has the token {NUM_IDS}, but must have ids from 0 to {NUM_IDS - 1}"
    ):
        open_checkpoint(folder).tokenizer()
    whole = content(["<unk>"], {})
    whole["model"]["unk_token"] = "<unk>"
    (folder / "tokenizer.json").write_text(json.dumps(whole))
    with pytest.raises(BadInput, match=f"unk_token has token {NUM_IDS}"):
        open_checkpoint(folder).tokenizer()


def test_a_file_whose_other_tokens_would_change_their_ids_is_refused(tmp_path: Path) -> None:
    """The library gives an added token the next free id, not the one that the file states."""
    whole = content(["Ġhixyz"], {TOOL: (NUM_IDS - 3, False)})
    del whole["model"]["vocab"][f"[fill{NUM_IDS - 3}]"]
    folder = folder_with(tmp_path / "m", whole)
    with pytest.raises(BadInput, match=rf"added_tokens is id \d+ for '{TOOL}' .*its own id, {NUM_IDS - 3}"):
        tokenizer_from_folder(folder, NUM_IDS)
