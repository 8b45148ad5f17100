"""How a configuration is read: a key for every value, as GGUF and as Hugging Face spell it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from samebits.core.errors import BadInput
from samebits.loaders.fields import Fields, shown
from samebits.loaders.limits import MAX_VOCAB
from samebits.loaders.source import TensorEntry
from samebits.loaders.texts import Texts

MAX_LAYERS = 1024
MAX_WIDTH = 1 << 20
MAX_HEADS = 4096
MAX_HEAD_SIZE = 4096
MAX_CONTEXT = 1 << 30
MAX_TAPS = 64
MAX_EXPERTS = 1 << 16
Known = Mapping[str, Any]


class _Mark:
    """Stands where no value can."""


REQUIRED, SAME = _Mark(), _Mark()


@dataclass(frozen=True)
class Key:
    """A number in bounds. None as a spelling: files of that kind do not store it, and the default holds.

    hf_too        another spelling of Hugging Face's; a file that has both must say the same in both
    default       where the key is absent; a function of the values read before it where it depends on those
    gguf_default  the same for GGUF, where that differs
    may_be_off    a null, or a 0 in GGUF, is None and switches a feature off; elsewhere a null counts as absent
    """

    gguf: str | None
    hf: str | None
    low: float
    high: float
    default: Any = REQUIRED
    is_whole: bool = False
    gguf_default: Any = SAME
    may_be_off: bool = False
    hf_too: str | None = None


def whole(gguf: str | None, hf: str | None, low: int, high: int, default: Any = REQUIRED, **more: Any) -> Key:
    return Key(gguf, hf, low, high, default, is_whole=True, **more)


def number(gguf: str | None, hf: str | None, low: float, high: float, default: Any = REQUIRED, **more: Any) -> Key:
    return Key(gguf, hf, low, high, default, **more)


@dataclass(frozen=True)
class Source:
    """What a file says of its model: GGUF metadata below the architecture's prefix, or a config.json.

    tensors  of the file, by its own names: GGUF tells some things only by a tensor that is there
    """

    fields: Fields
    is_gguf: bool
    tensors: Mapping[str, TensorEntry]

    def values(self, keys: Mapping[str, Key]) -> dict[str, Any]:
        """All values of a table, in its order; BadInput for one that is missing or out of bounds."""
        known: dict[str, Any] = {}
        for name, key in keys.items():
            known[name] = self._value(key, known)
        return known

    def _value(self, key: Key, known: Known) -> Any:
        fields, name = self.fields, key.gguf if self.is_gguf else key.hf
        if not self.is_gguf and key.hf_too and key.hf and not fields.has(key.hf):
            name = key.hf_too if fields.has(key.hf_too) else key.hf
        default = key.gguf_default if self.is_gguf and key.gguf_default is not SAME else key.default
        if callable(default):
            default = default(known)
        if name is None:
            return default
        if key.may_be_off and fields.prefix + name in fields.values and _is_nothing(fields.get(name)):
            return None
        more = () if default is REQUIRED else (default,)
        if key.is_whole:
            value = fields.integer(name, int(key.low), int(key.high), *more)
        else:
            value = fields.number(name, key.low, key.high, *more)
        other = None if self.is_gguf or name == key.hf_too else key.hf_too
        if other and fields.has(other) and fields.get(other) != value:
            raise fields.fail(other, shown(fields.get(other)), f"the {value} of {name}")
        return value

    def skip(self, keys: Mapping[str, Key]) -> None:
        """Note that a table's keys say nothing here, since the model lacks what they describe."""
        for key in keys.values():
            for name in (key.gguf,) if self.is_gguf else (key.hf, key.hf_too):
                if name is not None:
                    self.fields.asked.add(self.fields.prefix + name)

    def vocab_size(self) -> int:
        """Of a config.json, or the rows of a GGUF file's embedding, which are the truth there."""
        if not self.is_gguf:
            return int(self.fields.integer("vocab_size", 1, MAX_VOCAB))
        if (embed := self.tensors.get("token_embd.weight")) is not None and len(embed.shape) == 2:
            return embed.shape[0]
        tokens = self.fields.values.get("tokenizer.ggml.tokens")
        num_tokens = len(tokens) if isinstance(tokens, Texts) and tokens else None
        return int(self.fields.integer("vocab_size", 1, MAX_VOCAB, *([num_tokens] if num_tokens else [])))

    def refuse(self, gguf: str | None, hf: str | None, needed: str, usual: int | None = None) -> None:
        """BadInput where a key holds something but `usual`, 0 or false."""
        name = gguf if self.is_gguf else hf
        given = None if name is None else self.fields.get(name)
        if name is not None and not _is_nothing(given) and (type(given) is not int or given != usual):
            raise self.fields.fail(name, shown(given), needed)

    def has_tensor(self, ending: str) -> bool:
        """Whether any layer has a tensor whose name in the file ends so."""
        return any(name.endswith(ending) for name in self.tensors)

    def flag(self, hf: str, default: bool) -> bool:
        return bool(self.fields.flag(hf, default))

    def spelling(self, hf: str, hf_too: str | None) -> str:
        """Return the spelling of a config.json's key. Raise BadInput if it has both and they differ."""
        if hf_too is None or not self.fields.has(hf_too):
            return hf
        stated, other = self.fields.get(hf), self.fields.get(hf_too)
        if stated is not None and stated != other:
            raise self.fields.fail(hf_too, shown(other), f"the same as {hf}, {shown(stated)}")
        return hf_too

    def fail(self, what: str, given: object, needed: str) -> BadInput:
        return BadInput(self.fields.where, what, given, needed)


def _is_nothing(value: object) -> bool:
    """Null, false or 0; an array of a GGUF file is something, and has no truth of its own."""
    return value is None or (type(value) in (bool, int, float) and value == 0)
