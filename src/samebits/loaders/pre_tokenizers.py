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
_LETTERS_WITH_CASE = (  # of all scripts, as DeepSeek listed them
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373"
    "\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f"
    "\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77"
    "\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d"
    "\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb"
    "\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128"
    "\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4"
    "\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf"
    "\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3"
    "\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943"
)
_DEEPSEEK_LLM = (
    r"[\r\n]",
    rf"\s?[{_LETTERS_WITH_CASE}]+",
    "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
    r"(?<!\s)\s++\z",  # \s+$, which takes quadratic time for spaces in front of something else
    "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+",
    r"\p{N}+",
)
_NOT_HAN = r"&&[^\p{Han}]]"
_KIMI_K2 = (  # GPT-4o's, with stretches of Chinese characters apart
    rf"\p{{Han}}+|{_BEFORE}{_CAPITALS[:-1]}{_NOT_HAN}*{_SMALL[:-1]}{_NOT_HAN}+{_CONTRACTIONS}?"
    rf"|{_BEFORE}{_CAPITALS[:-1]}{_NOT_HAN}+{_SMALL[:-1]}{_NOT_HAN}*{_CONTRACTIONS}?"
    rf"|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*{_SPACES}"
)

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
    "deepseek-llm": _DEEPSEEK_LLM,
    "kimi-k2": (_KIMI_K2,),
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
