"""The regular expressions by which known model families cut a text, as their tokenizer.json writes them.

Each takes time in proportion to the text. A pattern that is not here is refused: one made to backtrack would keep a
thread busy for ever, and it is hard to tell the two kinds apart by looking.
"""

from __future__ import annotations

from samebits.loaders import pre_tokenizers

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
_CAPITALS, _SMALL = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CASED = rf"[^\r\n\p{{L}}\p{{N}}]?{_CAPITALS}*{_SMALL}+{{0}}|[^\r\n\p{{L}}\p{{N}}]?{_CAPITALS}+{_SMALL}*{{0}}"
_MARKS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_MARKS_SLASH = r" ?[^\s\p{L}\p{N}]+[\r\n/]*"


def words(numbers: str) -> str:
    """Llama 3's pattern and its kin, which differ in how many digits stay together."""
    return rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{numbers}|{_MARKS}{_SPACES}"


QWEN35 = words(r"\p{N}").replace(r"\p{L}+", r"[\p{L}\p{M}]+").replace(r"\s\p{L}", r"\s\p{L}\p{M}")
GPT4O = _CASED.replace("{0}", f"{_CONTRACTIONS}?") + rf"|\p{{N}}{{1,3}}|{_MARKS_SLASH}{_SPACES}"
TEKKEN = _CASED.replace("{0}", "") + rf"|\p{{N}}|{_MARKS_SLASH}{_SPACES}"
DEEPSEEK_V3 = pre_tokenizers.PATTERNS["deepseek-v3"]
SPLIT_PATTERNS = frozenset(
    [
        words(r"\p{N}{1,3}"),  # Llama 3, GPT-4
        words(r"\p{N}"),  # Qwen 2 and 3
        QWEN35,
        TEKKEN,  # Mistral Nemo and Small
        GPT4O,
        *(pattern for patterns in pre_tokenizers.PATTERNS.values() for pattern in patterns),
        *(pattern.replace(r"\r\n", "\r\n") for pattern in DEEPSEEK_V3),  # line ends may stand there as themselves
        r"\p{N}{1,3}",
        r"\d",
        r"[0-9]",
        r" {2,}",
        r"\s+",
    ]
)
