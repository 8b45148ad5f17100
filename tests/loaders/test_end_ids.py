"""At which ids an answer ends: as GGUF files name them, and as a folder's configurations do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
from gguf_writer import ARRAY, I32, STRING, U32, byte_level_vocab, tiny_model

from samebits.core.errors import BadInput
from samebits.loaders import Tokenizer
from samebits.loaders.byte_level import BYTE_OF_CHAR
from samebits.loaders.end_ids import stated_end_ids
from samebits.loaders.gguf import parse_gguf
from samebits.loaders.gguf_tokenizer import tokenizer_from_gguf
from samebits.loaders.hf_tokenizer import tokenizer_from_folder
from samebits.loaders.tokenizer import END_TEXTS

GLM = ["<eos>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"]


def gguf_with(texts: list[str], kind: int = 3, **named: str) -> tuple[Tokenizer, dict[str, int]]:
    """A tokenizer with these tokens at its end, all of one type; `named`: the key of an id, and its text."""
    vocab = byte_level_vocab()
    old = vocab["tokenizer.ggml.tokens"][1]
    ids = {text: len(old) + i for i, text in enumerate(texts)}
    types = [1] * len(old) + [kind] * len(texts)
    vocab |= {"tokenizer.ggml.tokens": ((ARRAY, STRING), [*old, *texts])}
    vocab |= {"tokenizer.ggml.token_type": ((ARRAY, I32), types)}
    vocab |= {f"tokenizer.ggml.{key}_token_id": (U32, ids[text]) for key, text in named.items()}
    file = tiny_model("llama", vocab)
    return tokenizer_from_gguf(parse_gguf(file.build(), Path("x.gguf")).metadata, "x.gguf"), ids


def test_glm_ends_where_a_tool_is_called() -> None:
    """llama.cpp's files of GLM-4.5 name <|user|> as eot and <|observation|> as eom; generation ends at all three."""
    tokenizer, ids = gguf_with(GLM, eos=GLM[0], eot="<|user|>", eom="<|observation|>")
    assert {ids[GLM[0]], ids["<|user|>"], ids["<|observation|>"]} <= tokenizer.special.end_ids
    assert tokenizer.special.end_ids.isdisjoint((ids["<|system|>"], ids["<|assistant|>"]))


@pytest.mark.parametrize("key", ["eos", "eot", "eom"])
def test_every_key_of_an_end_is_read(key: str) -> None:
    tokenizer, ids = gguf_with(["<|stop|>", "<|other|>"], **{key: "<|stop|>"})
    assert ids["<|stop|>"] in tokenizer.special.end_ids
    assert ids["<|other|>"] not in tokenizer.special.end_ids


def test_the_list_of_ends_that_ollama_writes_is_read() -> None:
    vocab = byte_level_vocab()
    size = len(vocab["tokenizer.ggml.tokens"][1])
    metadata = parse_gguf(tiny_model("llama", vocab).build(), Path("x.gguf")).metadata
    key = "tokenizer.ggml.eos_token_ids"
    listed = tokenizer_from_gguf(metadata | {key: np.array([5, 7], np.int32)}, "x.gguf")
    assert {5, 7} <= listed.special.end_ids
    for wrong in (np.array([size]), np.array([-1]), np.array([0.5]), np.zeros(65, np.int32), 5, "5", [np.array([5])]):
        with pytest.raises(
            BadInput, match=r"x.gguf: tokenizer.ggml.eos_token_ids is .*, but must be at most 64 ids below"
        ):
            tokenizer_from_gguf(metadata | {key: wrong}, "x.gguf")


USER_DEFINED, CONTROL = 4, 3
KNOWN = byte_level_vocab()["tokenizer.ggml.tokens"][1]


@pytest.mark.parametrize("text", [text for text in END_TEXTS if text not in KNOWN])
@pytest.mark.parametrize("kind", [USER_DEFINED, CONTROL])
def test_a_tag_of_html_ends_no_answer_where_it_is_no_control_token(text: str, kind: int) -> None:
    """llama.cpp takes texts such as <|im_end|> for control tokens whatever their type; Gemma's </s> is a tag of HTML,
    which its files mark as user-defined, and its transformers folder ends at <eos> and <end_of_turn> alone."""
    tokenizer, ids = gguf_with(["<s>", text, "<|stop|>"], kind, eos="<|stop|>")
    assert (ids[text] in tokenizer.special.end_ids) is (text != "</s>" or kind == CONTROL)
    if text == "</s>" and kind == USER_DEFINED:
        written = tokenizer.encode("<s>hi</s> <s>x</s>")
        assert tokenizer.special.end_ids.isdisjoint(written)
        assert tokenizer.decode(written, skip_special=True) == "<s>hi</s> <s>x</s>"


def test_a_tag_that_the_file_names_as_an_end_is_one() -> None:
    for key in ("eos", "eot", "eom"):
        tokenizer, ids = gguf_with(["<s>", "</s>"], USER_DEFINED, **{key: "</s>"})
        assert ids["</s>"] in tokenizer.special.end_ids


def folder_with(path: Path, **configs: dict[str, Any] | None) -> Path:
    """A tokenizer of 260 ids, of which 257 to 259 are special, and configurations by the names of their files."""
    vocab = {text: i for i, text in enumerate([*BYTE_OF_CHAR, "hi"])}
    library = tokenizers.Tokenizer(tokenizers.models.BPE(vocab, [("h", "i")]))
    library.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = tokenizers.decoders.ByteLevel()
    library.add_special_tokens(["<s>", "<|a|>", "<|b|>"])
    library.save(str(path / "tokenizer.json"))
    for name, value in configs.items():
        if value is not None:
            (path / f"{name}.json").write_text(json.dumps(value))
    return path


SEVERAL: list[tuple[Any, Any, list[int]]] = [  # generation_config.json, config.json, and the ends
    (None, {"eos_token_id": 258}, [258]),
    (None, {"eos_token_id": [258, 259]}, [258, 259]),
    (None, {"text_config": {"eos_token_id": 259}}, [259]),
    (None, {"eos_token_id": None, "text_config": {"eos_token_id": [259]}}, [259]),
    (None, {"eos_token_id": 258, "text_config": {"eos_token_id": 259}}, [258]),
    (None, {"rope_theta": float("inf")}, []),
    (None, None, []),
    ({}, {"eos_token_id": 258}, []),
    ({"eos_token_id": None}, {"eos_token_id": 258}, []),
    ({"eos_token_id": 259}, {"eos_token_id": 258}, [259]),
    ({"eos_token_id": [257, 259]}, None, [257, 259]),
    ({"text_config": {"eos_token_id": 259}}, None, []),
]


@pytest.mark.parametrize(("generation", "config", "ends"), SEVERAL)
def test_a_folder_ends_where_transformers_does(tmp_path: Path, generation: Any, config: Any, ends: list[int]) -> None:
    """transformers makes a generation configuration of config.json where generation_config.json is missing: the whole
    model's value first, then the text model's. It is not run here."""
    folder = folder_with(tmp_path, generation_config=generation, config=config)
    assert tokenizer_from_folder(folder).special.end_ids == set(ends)
    assert stated_end_ids(folder) == ends


@pytest.mark.parametrize("name", ["config", "generation_config"])
@pytest.mark.parametrize("wrong", [260, -1, "</s>", True, 1.5, [258, None], [3] * 65, {"a": 1}])
def test_what_is_no_id_is_refused(tmp_path: Path, name: str, wrong: Any) -> None:
    with pytest.raises(BadInput, match=rf"/{name}\.json: eos_token_id is "):
        tokenizer_from_folder(folder_with(tmp_path, **{name: {"eos_token_id": wrong}}))


def test_an_end_may_be_a_row_of_the_model_without_a_token(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, config={"eos_token_id": 263})
    assert tokenizer_from_folder(folder, 264).special.end_ids == {263}
    with pytest.raises(BadInput, match="eos_token_id is 263, but must be ids from 0 to 262"):
        tokenizer_from_folder(folder, 263)
