"""How byte-level BPE models cut a text into words, by the name a GGUF file gives the way."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers.pre_tokenizers import PreTokenizer

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_CONTRACTIONS = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
_SPACES = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*{_SPACES}"
_QWEN2 = rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*{_SPACES}"
_QWEN35 = (  # Qwen 2's, with marks among the letters
    rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*{_SPACES}"
)
_CAPITALS, _SMALL = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_BEFORE = r"[^\r\n\p{L}\p{N}]?"
_GPT4O = (  # a word ends where capitals begin again, and keeps its contraction
    rf"{_BEFORE}{_CAPITALS}*{_SMALL}+{_CONTRACTIONS}?|{_BEFORE}{_CAPITALS}+{_SMALL}*{_CONTRACTIONS}?"
    rf"|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*{_SPACES}"
)
_TEKKEN = (  # GPT-4o's without contractions, digits one by one
    rf"{_BEFORE}{_CAPITALS}*{_SMALL}+|{_BEFORE}{_CAPITALS}+{_SMALL}*|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*{_SPACES}"
)
_DEEPSEEK_V3 = (  # digits, then stretches of Chinese and Japanese, then words
    r"\p{N}{1,3}",
    "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    rf"| ?[\p{{P}}\p{{S}}]+[\r\n]*{_SPACES}",
)
_DIGITS = r"\p{N}"

PATTERNS: dict[str, tuple[str, ...]] = {
    "gpt-2": (_GPT2,),
    "smollm": (_DIGITS, _GPT2),
    "llama-bpe": (_LLAMA3,),
    "qwen2": (_QWEN2,),
    "qwen35": (_QWEN35,),
    "glm4": (_LLAMA3,),
    "gpt-4o": (_GPT4O,),
    "tekken": (_TEKKEN,),
    "deepseek-v3": _DEEPSEEK_V3,
}
ALIASES = {
    "chatglm-bpe": "glm4",
    "dbrx": "glm4",
    "llama4": "gpt-4o",
    "llama3": "llama-bpe",
    "llama-v3": "llama-bpe",
    "falcon3": "llama-bpe",
    "falcon-h1": "llama-bpe",
    "lfm2": "llama-bpe",
    "pixtral": "llama-bpe",
    "phi-2": "gpt-2",
    "mpt": "gpt-2",
    "olmo": "gpt-2",
    "starcoder": "smollm",
    "refact": "smollm",
    "command-r": "smollm",
    "deepseek-r1-qwen": "qwen2",
}
WHOLE_WORDS_FIRST = frozenset(("llama-bpe", "tekken"))  # a word that is a token is taken whole, without merges
BEGINS_WITH_BOS = frozenset(("llama-bpe", "tekken"))  # unless the file says otherwise


def canonical(name: str) -> str | None:
    """The name in PATTERNS that `name` means, or None."""
    name = ALIASES.get(name, name)
    return name if name in PATTERNS else None


def build(name: str) -> PreTokenizer:
    """The pre-tokenizer of a name in PATTERNS: its patterns one after another, then bytes as characters."""
    from tokenizers import Regex, pre_tokenizers  # native code cuts most models' words

    splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in PATTERNS[name]]
    return pre_tokenizers.Sequence([*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
