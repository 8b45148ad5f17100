"""Tokenizers from GGUF metadata and from tokenizer.json, and the lines for vocabularies that are wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from gguf_writer import ARRAY, BOOL, F32, I32, MERGES, STRING, U32, byte_level_vocab, scored_vocab, tiny_model

from samebits.api.texts import Texts
from samebits.core.errors import BadInput
from samebits.loaders import ChatTemplate, Tokenizer, pre_tokenizers
from samebits.loaders.byte_level import BYTE_OF_CHAR
from samebits.loaders.gguf import parse_gguf
from samebits.loaders.gguf_tokenizer import tokenizer_from_gguf
from samebits.loaders.hf_tokenizer import read_hf_templates, tokenizer_from_folder
from samebits.loaders.merge_by_score import merge_by_score
from samebits.server.turns.model_forms import FormChoice, ModelForms


def build(vocab: dict[str, Any], **changes: tuple[Any, Any] | None) -> Tokenizer:
    """A tokenizer through a real file; a change of None takes a key away."""
    stated = vocab | {f"tokenizer.ggml.{key}": value for key, value in changes.items()}
    file = tiny_model("llama", vocab)
    file.metadata = {key: value for key, value in (file.metadata | stated).items() if value is not None}
    return tokenizer_from_gguf(parse_gguf(file.build(), Path("x.gguf")).metadata, "x.gguf")


def test_byte_level() -> None:
    tokenizer = build(byte_level_vocab())
    hi, space_hi, aaaa = (3 + 256 + MERGES.index(merge) for merge in ("h i", "\u0120 hi", "aa aa"))
    assert tokenizer.encode("hi hi") == [hi, space_hi]
    assert tokenizer.encode("aaaaa") == [aaaa, tokenizer.encode("a")[0]]
    assert tokenizer.encode("<|im_start|>hi<|im_end|>") == [1, hi, 2]
    assert len(tokenizer.encode("<|im_start|>", parse_special=False)) > 5
    assert tokenizer.decode([1, hi, 2]) == "<|im_start|>hi<|im_end|>"
    assert tokenizer.decode([1, hi, 2], skip_special=True) == "hi"
    special = tokenizer.special
    assert (special.bos, special.eos, special.eot, special.pad) == (1, 2, 2, None)
    assert special.end_ids == {0, 2}
    assert tokenizer.token_text(special.eos) == "<|im_end|>"
    assert tokenizer.encode("") == []


def test_begin_and_end_tokens() -> None:
    both = {"add_bos_token": (BOOL, 1), "add_eos_token": (BOOL, 1)}
    tokenizer = build(byte_level_vocab(), **both)
    assert tokenizer.encode("") == [1, 2]
    assert tokenizer.encode("", add_special=False) == []
    with pytest.raises(BadInput, match="bos_token_id is missing: it must be an id, because add_bos_token is set"):
        build(byte_level_vocab(), **both, bos_token_id=None)


def test_bytes_the_vocabulary_lacks_are_left_out_and_nothing_is_merged_across() -> None:
    vocab = byte_level_vocab()
    tokens = list(vocab["tokenizer.ggml.tokens"][1])
    tokens[tokens.index("z")] = "[gone]"
    tokenizer = build(vocab, tokens=((ARRAY, STRING), tokens))
    h, i = tokenizer.encode("h")[0], tokenizer.encode("i")[0]
    assert tokenizer.encode("hzi") == [h, i]


def test_every_pre_tokenizer_cuts_as_stated() -> None:
    words = {
        "gpt-2": ["I", "'m", "\u0120123", "4", "\u0120\u0120", "\u0120x", "\u010a"],
        "smollm": ["I", "'m", "\u0120", "1", "2", "3", "4", "\u0120\u0120", "\u0120x", "\u010a"],
        "llama-bpe": ["I", "'m", "\u0120", "123", "4", "\u0120\u0120", "\u0120x", "\u010a"],
        "qwen2": ["I", "'m", "\u0120", "1", "2", "3", "4", "\u0120\u0120", "\u0120x", "\u010a"],
    }
    words["qwen35"] = words["qwen2"]
    words["glm4"] = words["llama-bpe"]
    words["gpt-4o"] = ["I'm", *words["llama-bpe"][2:]]
    words["tekken"], words["deepseek-v3"] = words["qwen2"], words["llama-bpe"]
    words["deepseek-llm"] = ["I", "'", "m", "\u0120", "1234", "\u0120\u0120", "\u0120x", "\u010a"]
    words["kimi-k2"] = words["gpt-4o"]
    words["gpt-2"][2:4] = ["\u01201234"]
    assert words.keys() == pre_tokenizers.PATTERNS.keys()
    for name, expected in words.items():
        cut = pre_tokenizers.build(name).pre_tokenize_str("I'm 1234   x\n")
        assert [word for word, _ in cut] == expected, name
    for name in [*pre_tokenizers.ALIASES, *pre_tokenizers.PATTERNS]:
        assert pre_tokenizers.canonical(name) in pre_tokenizers.PATTERNS


def test_marks_are_letters_to_qwen35_alone() -> None:
    text = "e\u0301a"
    cuts = {name: len(pre_tokenizers.build(name).pre_tokenize_str(text)) for name in ("qwen2", "qwen35")}
    assert cuts == {"qwen2": 2, "qwen35": 1}


def test_gpt_4o_cuts_before_capitals() -> None:
    cut = pre_tokenizers.build("gpt-4o").pre_tokenize_str("HelloWorld'S HTTPServer a/b//\n12345 e\u0301")
    assert [word for word, _ in cut] == [
        *("Hello", "World'S", "\u0120HTTPServer", "\u0120a", "/b", "//\u010a", "123", "45"),
        "\u0120e\u00cc\u0123",
    ]


def test_tekken_cuts_before_capitals_and_between_digits() -> None:
    """The regex of Mistral Nemo's tokenizer.json, which llama.cpp's `tekken` stands for."""
    cut = pre_tokenizers.build("tekken").pre_tokenize_str("HelloWorld'S HTTPServer a/b//\n123 e\u0301")
    assert [word for word, _ in cut] == [
        *("Hello", "World", "'S", "\u0120HTTPServer", "\u0120a", "/b", "//\u010a", "1", "2", "3"),
        "\u0120e\u00cc\u0123",
    ]


def test_deepseek_v3_cuts_digits_then_han_and_kana_then_words() -> None:
    """The three regexes of DeepSeek-V3's tokenizer.json, which llama.cpp's `deepseek-v3` stands for."""
    text = "ab12345c \u4e2d\u6587\u3042x_id (a) $x!!\r\n  e\u0301\n y"
    cut = pre_tokenizers.build("deepseek-v3").pre_tokenize_str(text)
    assert [pre_tokenizer_text(word) for word, _ in cut] == [
        *("ab", "123", "45", "c", " ", "\u4e2d\u6587\u3042", "x", "_id", " (", "a", ")", " $", "x"),
        *("!!\r\n", " ", " e\u0301", "\n", " y"),
    ]


def test_deepseek_llm_cuts_line_ends_words_signs_han_and_numbers() -> None:
    """The regexes that llama.cpp's `deepseek-llm` stands for: DeepSeek-V2's."""
    cut = pre_tokenizers.build("deepseek-llm").pre_tokenize_str("ab c12345 \u4e2d\u6587\uac00, x!!\r\n \u00e9\u0436   ")
    assert [pre_tokenizer_text(word) for word, _ in cut] == [
        *("ab", " c", "12345", " ", "\u4e2d\u6587\uac00", ",", " x", "!!", "\r", "\n", " \u00e9\u0436", "   "),
    ]


def test_kimi_k2_cuts_before_capitals_and_around_han() -> None:
    """The regex of Kimi K2's own tokenizer, which llama.cpp's `kimi-k2` stands for."""
    text = "Hello\u4e2d\u6587abcWorld's 12345 \u6f22\u304b !!\n  y"
    cut = pre_tokenizers.build("kimi-k2").pre_tokenize_str(text)
    assert [pre_tokenizer_text(word) for word, _ in cut] == [
        *("Hello", "\u4e2d\u6587", "abc", "World's", " ", "123", "45", " ", "\u6f22", "\u304b", " !!\n", " ", " y"),
    ]


def pre_tokenizer_text(word: str) -> str:
    return bytes(BYTE_OF_CHAR[char] for char in word).decode()


ALIKE = {  # names of GGUF files that mean the same, and what they say of whole words and of the first token
    "dbrx": ("glm4", False, False),  # Granite 4
    "glm4": ("glm4", False, False),
    "falcon3": ("llama-bpe", True, True),
    "llama-bpe": ("llama-bpe", True, True),
    "llama4": ("gpt-4o", False, False),
    "tekken": ("tekken", True, True),
    "deepseek-v3": ("deepseek-v3", False, False),
    "deepseek-llm": ("deepseek-llm", False, False),
    "kimi-k2": ("kimi-k2", False, False),
}


@pytest.mark.parametrize("name", ALIKE)
def test_names_of_ways_to_cut_words(name: str) -> None:
    """As llama.cpp's llama-vocab.cpp has them: the regexes, `ignore_merges` and `add_bos`."""
    pattern, takes_whole, adds_bos = ALIKE[name]
    vocab = byte_level_vocab()
    texts = [*vocab["tokenizer.ggml.tokens"][1], "whole"]
    more = {"tokens": ((ARRAY, STRING), texts), "token_type": ((ARRAY, I32), [1] * len(texts)), "pre": (STRING, name)}
    tokenizer = build(vocab, **more, add_bos_token=None)
    assert tokenizer.pre_tokenizer == pattern  # type: ignore[attr-defined]
    assert (tokenizer.encode("whole", add_special=False) == [len(texts) - 1]) is takes_whole
    assert (tokenizer.encode("")[:1] == [tokenizer.special.bos]) is adds_bos


def test_scored() -> None:
    tokenizer = build(scored_vocab())
    ids = {text: i for i, text in enumerate(scored_vocab()["tokenizer.ggml.tokens"][1])}
    assert tokenizer.encode("hi") == [1, ids["\u2581hi"]]
    assert tokenizer.encode("hi", add_special=False) == [ids["\u2581hi"]]
    assert tokenizer.encode("\u00e9", add_special=False) == [ids["\u2581"], 3 + 0xC3, 3 + 0xA9]
    assert tokenizer.encode("<s>hi</s>", add_special=False) == [1, ids["\u2581hi"], 2]
    assert tokenizer.decode(tokenizer.encode(" hi \u00e9", add_special=False)) == " hi \u00e9"
    assert (tokenizer.special.bos, tokenizer.special.eos, tokenizer.special.unk) == (1, 2, 0)
    without = build(scored_vocab(), add_space_prefix=(BOOL, 0), add_bos_token=(BOOL, 0))
    assert without.encode("hi") == [ids["hi"]]
    assert without.decode(without.encode(" hi")) == " hi"


def test_the_best_score_is_merged_first_and_the_leftmost_of_equal_ones() -> None:
    ids = {"a": 0, "aa": 1, "aaa": 2}
    assert merge_by_score("aaa", {"a": 0, "aa": 1}, [0, -1]) == ["aa", "a"]
    assert merge_by_score("aaaaa", ids, [0, -1, -2]) == ["aa", "aaa"]
    assert merge_by_score("aaaaa", ids, [0, -2, -1]) == ["aaa", "aa"]
    assert merge_by_score("", ids, [0, -1, -2]) == []


def test_streaming_holds_back_half_characters() -> None:
    tokenizer = build(byte_level_vocab())
    ids = tokenizer.encode("a\U0001f642b")
    stream = tokenizer.stream()
    assert [stream.push(i) for i in ids] == ["a", "", "", "", "\U0001f642", "b"]
    assert stream.finish() == ""
    stream.push(*ids[:3])
    assert stream.finish() == "\ufffd"
    assert tokenizer.decode_bytes(ids[1:3]) == "\U0001f642".encode()[:2]


def test_bad_arguments() -> None:
    tokenizer = build(byte_level_vocab())
    with pytest.raises(BadInput, match="a lone surrogate at 1"):
        tokenizer.encode("a\ud800")
    with pytest.raises(BadInput, match="token id is 265, but must be from 0 to 264"):
        tokenizer.decode([265])
    with pytest.raises(BadInput, match="token id is -1"):
        tokenizer.decode([-1])


TOKENS = byte_level_vocab()["tokenizer.ggml.tokens"][1]
WRONG: dict[str, tuple[Any, dict[str, Any], str]] = {
    "no tokens": (byte_level_vocab, {"tokens": None}, "tokens is missing: it must be an array of strings"),
    "empty vocabulary": (byte_level_vocab, {"tokens": ((ARRAY, STRING), [])}, "tokens is 0"),
    "tokens of numbers": (byte_level_vocab, {"tokens": ((ARRAY, I32), [1])}, "tokens is a ndarray of 1"),
    "duplicate": (byte_level_vocab, {"tokens": ((ARRAY, STRING), [*TOKENS[:-1], "a"])}, "'a' as 67 and 264"),
    "types too short": (byte_level_vocab, {"token_type": ((ARRAY, I32), [1])}, "token_type has 1 values"),
    "types of text": (byte_level_vocab, {"token_type": ((ARRAY, STRING), ["x"])}, "token_type is a list"),
    "unknown type": (byte_level_vocab, {"token_type": ((ARRAY, I32), [9] * 265)}, "token_type is 9"),
    "unknown merge": (byte_level_vocab, {"merges": ((ARRAY, STRING), ["q qq"])}, "'q qq' as number 0"),
    "merge of one": (byte_level_vocab, {"merges": ((ARRAY, STRING), ["hi"])}, "'hi' as number 0"),
    "merge of one that would fit": (
        byte_level_vocab,
        {
            "tokens": ((ARRAY, STRING), [*TOKENS[:-2], "qz", "qqz"]),
            "merges": ((ARRAY, STRING), ["qz"]),
        },
        "'qz' as number 0",
    ),
    "merge to nothing": (byte_level_vocab, {"merges": ((ARRAY, STRING), ["x y"])}, "whose join is a token"),
    "no merges": (byte_level_vocab, {"merges": None}, "merges is missing"),
    "eos out of range": (byte_level_vocab, {"eos_token_id": (U32, 265)}, "eos_token_id is 265, but must be an int"),
    "eos as text": (byte_level_vocab, {"eos_token_id": (STRING, "x")}, "eos_token_id is 'x'"),
    "pre-tokenizer": (byte_level_vocab, {"pre": (STRING, "klingon")}, "pre is 'klingon', but must be one of"),
    "no pre-tokenizer": (byte_level_vocab, {"pre": None}, "pre is missing"),
    "model": (byte_level_vocab, {"model": (STRING, "bert")}, "model is 'bert', but must be gpt2 or llama"),
    "no scores": (scored_vocab, {"scores": None}, "scores is missing"),
    "NaN scores": (scored_vocab, {"scores": ((ARRAY, F32), [float("nan")] * 277)}, "scores has NaN or Inf"),
    "scores too long": (scored_vocab, {"scores": ((ARRAY, F32), [0.0] * 300)}, "scores has 300 values"),
    "flag as number": (scored_vocab, {"add_space_prefix": (U32, 1)}, "add_space_prefix is 1, but must be true or"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_vocabularies(name: str) -> None:
    vocab, changes, expected = WRONG[name]
    with pytest.raises(BadInput, match=expected) as caught:
        build(vocab(), **changes)
    assert str(caught.value).startswith("x.gguf: tokenizer.ggml.")


def _folder(path: Path, **config: Any) -> Path:
    """A byte-level tokenizer.json with the usual files beside it."""
    vocab = {text: i for i, text in enumerate([*BYTE_OF_CHAR, "hi"])}
    library = tokenizers.Tokenizer(tokenizers.models.BPE(vocab, [("h", "i")]))
    library.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = tokenizers.decoders.ByteLevel()
    library.add_special_tokens(["<s>", "<|im_end|>"])
    library.post_processor = tokenizers.processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 257)])
    library.save(str(path / "tokenizer.json"))
    stated = {"bos_token": "<s>", "eos_token": {"content": "<|im_end|>"}, "chat_template": "T"} | config
    (path / "tokenizer_config.json").write_text(json.dumps(stated))
    return path


def test_tokenizer_json(tmp_path: Path) -> None:
    tokenizer = tokenizer_from_folder(_folder(tmp_path))
    assert tokenizer.encode("hi<|im_end|>") == [257, 256, 258]
    assert tokenizer.encode("hi", add_special=False) == [256]
    assert 258 not in tokenizer.encode("<|im_end|>", parse_special=False)
    assert tokenizer.decode([257, 256, 258], skip_special=True) == "hi"
    text = "h\u00e9 \U0001f642"
    assert tokenizer.decode(tokenizer.encode(text, add_special=False)) == text
    assert (tokenizer.special.bos, tokenizer.special.eos, tokenizer.special.eot) == (257, 258, 258)
    assert read_hf_templates(tmp_path) == {"default": "T"}
    (tmp_path / "chat_template.jinja").write_text("J")
    assert read_hf_templates(tmp_path) == {"default": "J"}


def test_templates_get_the_special_tokens_that_transformers_passes(tmp_path: Path) -> None:
    """`special_tokens_map`: every token that has a name and a text, and no name without."""
    more = {"pad_token": "<s>", "image_token": "<image>", "sep_token": None, "add_bos_token": True, "unk_token": None}
    extra = {"extra_special_tokens": {"boi": "<boi>"}, "eos_token": {"content": "<|im_end|>"}}
    tokenizer = tokenizer_from_folder(_folder(tmp_path, **more, **extra))
    named = {"bos_token": "<s>", "eos_token": "<|im_end|>", "pad_token": "<s>", "image_token": "<image>"}
    assert tokenizer.special_texts == {**named, "boi": "<boi>"}
    (tmp_path / "special_tokens_map.json").write_text(json.dumps({"cls_token": {"content": "<cls>"}, "pad_token": "p"}))
    assert tokenizer_from_folder(tmp_path).special_texts == {
        **named,
        "boi": "<boi>",
        "pad_token": "p",
        "cls_token": "<cls>",
    }
    _folder(tmp_path, **more, added_tokens_decoder={})
    assert "cls_token" not in tokenizer_from_folder(tmp_path).special_texts
    template = ChatTemplate("{{ image_token }}{{ cls_token is defined }}{{ pad_token }}", "x")
    assert template.render([], special_tokens=tokenizer.special_texts) == "<image>False<s>"


@pytest.mark.parametrize("name", ["pad", "unk"])
def test_a_token_that_no_answer_needs_may_be_missing(tmp_path: Path, name: str) -> None:
    """Models tuned on Llama 2 state a pad_token that their tokenizer.json lacks; a text of it is no token then."""
    tokenizer = tokenizer_from_folder(_folder(tmp_path, **{f"{name}_token": "[NEW]"}))
    assert getattr(tokenizer.special, name) is None
    assert tokenizer.special_texts[f"{name}_token"] == "[NEW]"
    with pytest.raises(BadInput, match=r"eos_token is '\[NEW\]', but must be a token of the vocabulary"):
        tokenizer_from_folder(_folder(tmp_path, eos_token="[NEW]"))


def test_templates_get_the_special_tokens_of_a_gguf_file() -> None:
    texts = build(byte_level_vocab(), padding_token_id=(U32, 0), unknown_token_id=None).special_texts
    named = {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
    assert texts == named
    assert build(byte_level_vocab(), bos_token_id=None, add_bos_token=None).special_texts["bos_token"] == ""


@pytest.mark.parametrize(("name", "key"), [("pad", "padding_token_id"), ("unk", "unknown_token_id")])
def test_an_id_that_no_answer_needs_may_be_out_of_range(name: str, key: str) -> None:
    """llama.cpp warns of such an id and goes on; the largest is what converters made of -1."""
    for stated in ((1 << 32) - 1, 1 << 20):
        assert getattr(build(byte_level_vocab(), **{key: (U32, stated)}).special, name) is None
    for needed in ("bos", "eos", "eot", "eom"):
        with pytest.raises(BadInput, match=f"{needed}_token_id is {1 << 20}, but must be an integer from 0 to"):
            build(byte_level_vocab(), **{f"{needed}_token_id": (U32, 1 << 20)})


NAMED = [{"name": "default", "template": "D"}, {"name": "tool_use", "template": "T {{ tools }}"}]


def test_a_folder_may_have_several_templates(tmp_path: Path) -> None:
    """In tokenizer_config.json, or in files of their own, which then count alone, as in transformers."""
    _folder(tmp_path, chat_template=NAMED)
    assert read_hf_templates(tmp_path) == {"default": "D", "tool_use": "T {{ tools }}"}
    (tmp_path / "additional_chat_templates").mkdir()
    (tmp_path / "additional_chat_templates" / "tool_use.jinja").write_text("J")
    assert read_hf_templates(tmp_path) == {"tool_use": "J"}
    (tmp_path / "chat_template.jinja").write_text("D2")
    assert read_hf_templates(tmp_path) == {"default": "D2", "tool_use": "J"}
    for wrong in ([{"name": "default"}], [3], [{"name": 1, "template": "x"}], {"default": "x"}):
        folder = tmp_path / "wrong"
        folder.mkdir(exist_ok=True)
        _folder(folder, chat_template=wrong)
        with pytest.raises(BadInput, match=r"tokenizer_config\.json: chat_template is "):
            read_hf_templates(folder)


def test_a_conversation_with_tools_takes_the_template_for_tools(tmp_path: Path) -> None:
    """As transformers does; one template serves both where there is no other."""
    texts = Texts()
    texts.tokenizer, texts.max_len = tokenizer_from_folder(_folder(tmp_path)), 64
    texts.chat_template = ChatTemplate("plain", "x", "{{ eos_token }} {{ tools | length }}")
    tool = {"type": "function", "function": {"name": "f"}}
    assert texts.tokenizer.decode(texts.chat_prompt("hi")) == "plain"
    assert texts.tokenizer.decode(texts.chat_prompt("hi", tools=[])) == "plain"
    assert texts.tokenizer.decode(texts.chat_prompt("hi", tools=[tool])) == "<|im_end|> 1"
    forms = ModelForms(texts, FormChoice())
    assert forms.knows_tools
    texts.chat_template = ChatTemplate("{{ tools | length }}", "x")
    assert texts.tokenizer.decode(texts.chat_prompt("hi", tools=[tool])) == "1"
    assert texts.chat_template.whole_source == texts.chat_template.source


def test_a_sentence_piece_tokenizer_json(tmp_path: Path) -> None:
    texts = ["<unk>", *(f"<0x{b:02X}>" for b in range(256)), "\u2581", "h", "i", "hi", "\u2581hi"]
    vocab = {text: i for i, text in enumerate(texts)}
    merges = [("h", "i"), ("\u2581", "hi")]
    library = tokenizers.Tokenizer(tokenizers.models.BPE(vocab, merges, unk_token="<unk>", byte_fallback=True))
    normal = tokenizers.normalizers
    library.normalizer = normal.Sequence([normal.Prepend("\u2581"), normal.Replace(" ", "\u2581")])
    d = tokenizers.decoders
    library.decoder = d.Sequence([d.Replace("\u2581", " "), d.ByteFallback(), d.Fuse(), d.Strip(" ", 1, 0)])
    library.save(str(tmp_path / "tokenizer.json"))
    tokenizer = tokenizer_from_folder(tmp_path)
    ids = tokenizer.encode("hi \u00e9")
    assert ids == [vocab["\u2581hi"], vocab["\u2581"], vocab["<0xC3>"], vocab["<0xA9>"]]
    assert tokenizer.decode(ids) == library.decode(ids) == "hi \u00e9"
    assert tokenizer.decode_bytes(ids) == " hi \u00e9".encode()


def test_wrong_tokenizer_json(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="bos_token is '<none>', but must be a token"):
        tokenizer_from_folder(_folder(tmp_path, bos_token="<none>"))
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [258, 999]}')
    with pytest.raises(BadInput, match="eos_token_id is 999"):
        tokenizer_from_folder(_folder(tmp_path))
    (tmp_path / "generation_config.json").unlink()
    whole = json.loads((_folder(tmp_path) / "tokenizer.json").read_text())
    huge = whole | {"model": whole["model"] | {"vocab": whole["model"]["vocab"] | {"zz": 2**31}}}
    lost = whole | {"post_processor": whole["post_processor"] | {"special_tokens": {}}}  # made the library panic
    wrong = [json.dumps(value) for value in (huge, lost, whole | {"decoder": None})]
    for text in ("", "{", "[]", "null", '{"model": 3}', *wrong):
        (tmp_path / "tokenizer.json").write_text(text)
        with pytest.raises(BadInput, match=r"tokenizer\.json: ") as caught:
            tokenizer_from_folder(tmp_path)
        assert "\n" not in str(caught.value)
