"""Kinds of values that a receipt holds: how each is read from JSON that nobody vouches for, and its JSON schema."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from typing import Any, Protocol, TypeVar

from samebits.core.errors import BadInput

WHERE = "receipt"  # what refusals begin with
HASH_DIGITS, SIGNATURE_DIGITS = 64, 128
HEX = re.compile(r"[0-9a-f]*", re.ASCII)
Made = TypeVar("Made")


class TooCostly(BadInput):
    """A receipt that asks for more than any server accepts; it was not looked at any further."""


class Kind(Protocol):
    """One kind of value."""

    def read(self, name: str, value: Any) -> Any:
        """The value as records hold it; BadInput, which calls it `name`, for another."""
        ...

    def schema(self) -> dict[str, Any]:
        """The same in words of JSON Schema."""
        ...


def refused(name: str, value: Any, needed: str, kind: type[BadInput] = BadInput) -> BadInput:
    return kind(WHERE, name, shown(value), needed)


def shown(value: Any) -> str:
    """A value for a message; the kind alone of one that may be long."""
    if isinstance(value, (list, tuple, dict)):
        return f"{len(value)} items"
    text = repr(value[:80] if isinstance(value, str) else value)
    return text if len(text) <= 80 else f"{text[:76]} ..."


@dataclass(frozen=True)
class Whole:
    low: int
    high: int

    def read(self, name: str, value: Any) -> int:
        if type(value) is not int or not self.low <= value <= self.high:
            raise refused(name, value, f"a whole number, {self.low} .. {self.high}")
        return value

    def schema(self) -> dict[str, Any]:
        return {"type": "integer", "minimum": self.low, "maximum": self.high}


@dataclass(frozen=True)
class Real:
    def read(self, name: str, value: Any) -> float:
        if type(value) not in (int, float) or not math.isfinite(number := _as_float(value)):
            raise refused(name, value, "a number")
        return number

    def schema(self) -> dict[str, Any]:
        return {"type": "number"}


def _as_float(value: int | float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


@dataclass(frozen=True)
class Flag:
    def read(self, name: str, value: Any) -> bool:
        if type(value) is not bool:
            raise refused(name, value, "true or false")
        return value

    def schema(self) -> dict[str, Any]:
        return {"type": "boolean"}


@dataclass(frozen=True)
class Text:
    max_chars: int

    def read(self, name: str, value: Any) -> str:
        needed = f"a text of at most {self.max_chars} characters"
        if not isinstance(value, str):
            raise refused(name, value, needed)
        if len(value) > self.max_chars:
            raise refused(name, value, needed, TooCostly)
        return value

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "maxLength": self.max_chars}


@dataclass(frozen=True)
class Word:
    words: tuple[str, ...]

    def read(self, name: str, value: Any) -> str:
        if not isinstance(value, str) or value not in self.words:
            raise refused(name, value, f"one of {', '.join(self.words)}")
        return value

    def schema(self) -> dict[str, Any]:
        return {"enum": list(self.words)}


@dataclass(frozen=True)
class Hex:
    """A hash, or other bytes, in small hex digits."""

    num_digits: int = HASH_DIGITS

    def read(self, name: str, value: Any) -> str:
        if not isinstance(value, str) or len(value) != self.num_digits or not HEX.fullmatch(value):
            raise refused(name, value, f"{self.num_digits} hex digits")
        return value

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "pattern": f"^[0-9a-f]{{{self.num_digits}}}$"}


@dataclass(frozen=True)
class Several:
    """A list, which records hold as a tuple."""

    kind: Kind
    most: int

    def read(self, name: str, value: Any) -> tuple[Any, ...]:
        if not isinstance(value, (list, tuple)):
            raise refused(name, value, f"a list of at most {self.most}")
        if len(value) > self.most:
            raise refused(name, value, f"a list of at most {self.most}", TooCostly)
        if isinstance(self.kind, Whole) and set(map(type, value)) == {int}:
            low, high = self.kind.low, self.kind.high
            if low <= min(value) and max(value) <= high:
                return tuple(value)  # at once: a receipt may list very many ids
        return tuple(self.kind.read(name, item) for item in value)

    def schema(self) -> dict[str, Any]:
        return {"type": "array", "maxItems": self.most, "items": self.kind.schema()}


@dataclass(frozen=True)
class Pair:
    """A list of two."""

    first: Kind
    second: Kind

    def read(self, name: str, value: Any) -> tuple[Any, Any]:
        if not isinstance(value, (list, tuple)) or len(value) != 2:
            raise refused(name, value, "pairs")
        return self.first.read(name, value[0]), self.second.read(name, value[1])

    def schema(self) -> dict[str, Any]:
        items = [self.first.schema(), self.second.schema()]
        return {"type": "array", "prefixItems": items, "minItems": 2, "maxItems": 2}


@dataclass(frozen=True)
class OrNone:
    kind: Kind

    def read(self, name: str, value: Any) -> Any:
        return None if value is None else self.kind.read(name, value)

    def schema(self) -> dict[str, Any]:
        return {"anyOf": [self.kind.schema(), {"type": "null"}]}


@dataclass(frozen=True)
class Record:
    """An object with exactly the fields of a dataclass, all of them made by `stated`."""

    made: type[Any]

    def read(self, name: str, value: Any) -> Any:
        return read_record(self.made, value, name)

    def schema(self) -> dict[str, Any]:
        return record_schema(self.made)


def stated(kind: Kind, text: str, **default: Any) -> Any:
    """A field of a record: its kind, what it is, and a default for a field that may be absent."""
    return field(metadata={"kind": kind, "text": text}, **default)


def read_record(made: type[Made], value: Any, name: str = "") -> Made:
    """The record; BadInput for a field that is unknown, missing or of another kind."""
    if not isinstance(value, Mapping):
        raise refused(name or "JSON", value, "an object")
    known = {f.name: f for f in fields(made)}  # type: ignore[arg-type]
    before = f"{name}." if name else ""
    for given in value:
        if given not in known:
            raise refused(f"{before}field", given, f"one of {', '.join(known)}")
    missing = [n for n, f in known.items() if n not in value and f.default is MISSING]
    if missing:
        raise BadInput(WHERE, before + missing[0], "nothing", "a value")
    return made(**{n: known[n].metadata["kind"].read(before + n, v) for n, v in value.items()})


def plain(value: Any) -> Any:
    """Records within records as dicts; their lists, which may be long, as they are.

    A field that may be absent is left out if its value is None, so that receipts without it keep their bytes.
    """
    if not is_dataclass(value):
        return value
    held = {f.name: (f.default, getattr(value, f.name)) for f in fields(value)}
    return {name: plain(v) for name, (default, v) in held.items() if not (default is None and v is None)}


def record_schema(made: type[Any]) -> dict[str, Any]:
    """An object's schema, every field with what it is."""
    parts = {f.name: {"description": f.metadata["text"], **f.metadata["kind"].schema()} for f in fields(made)}
    required = [f.name for f in fields(made) if f.default is MISSING]
    return {"type": "object", "additionalProperties": False, "required": required, "properties": parts}
