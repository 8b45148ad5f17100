"""What all bodies share: strict types, bounded texts, and names that other servers use for the same field."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import AfterValidator, AliasChoices, BaseModel, ConfigDict, Field

from samebits.core.errors import refusal
from samebits.server.http.errors import ApiError
from samebits.server.limits import MAX_NAME_CHARS

Item = TypeVar("Item")
Text = Annotated[str, Field(max_length=MAX_NAME_CHARS)]
Few = Annotated[list[Item], Field(fail_fast=True)]  # one wrong item is enough: the others are not examined


def _refuse_true(value: bool) -> bool:
    if value:
        raise ValueError("false")
    return value


Off = Annotated[
    bool, AfterValidator(_refuse_true), Field(json_schema_extra={"const": False})
]  # what cannot be turned on


@dataclass(frozen=True)
class Refused:
    """A field that is refused, except with a value that asks for nothing; null always does."""

    asks: str
    harmless: tuple[Any, ...] = ()

    @property
    def reason(self) -> str:
        """Why the field is refused, and the values that are accepted all the same."""
        values = " or ".join(map(json.dumps, self.harmless))
        return f"it asks for {self.asks}" + (f"; only {values} is accepted" if values else "")

    def is_harmless(self, value: Any) -> bool:
        return value is None or any(
            isinstance(h, bool) == isinstance(value, bool) and h == value for h in self.harmless
        )


class Body(BaseModel):
    """A request. An integer may stand for a float, but not a float for an integer, and text is never converted."""

    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)
    refused: ClassVar[dict[str, Refused]] = {}  # fields of its own protocol that are not honoured
    accepted: ClassVar[dict[str, str]] = {}  # fields of its own protocol that have no effect, and why

    def given(self, name: str, default: Any) -> Any:
        """A field's value, the default for null."""
        value = getattr(self, name)
        return default if value is None else value

    @classmethod
    def names(cls) -> dict[str, tuple[str, ...]]:
        """The names by which clients may call each field, its own first."""
        found = {}
        for name, field in cls.model_fields.items():
            choices = field.validation_alias
            others = [str(c) for c in choices.choices] if isinstance(choices, AliasChoices) else []
            found[name] = tuple(dict.fromkeys([field.alias or name, *others]))
        return found


def says(text: str, *names: str) -> Any:
    """An optional field: what it asks for, and all of its names, its own first, where it has several."""
    return Field(None, description=text, validation_alias=AliasChoices(*names) if names else None)


def check_names(kind: type[Body], body: dict[str, Any]) -> None:
    """ApiError where one field is given under two names, with different values."""
    for names in kind.names().values():
        given = [name for name in names if name in body]
        if any(body[name] != body[given[0]] for name in given):
            needed = "one of them: they are names of one field"
            raise ApiError(400, refusal(" and ".join(given), "both", needed), given[1])
