"""The functions that a request offers its model, whatever protocol it came in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from samebits.core.errors import as_given
from samebits.server.http.errors import bad_request

Choice = Literal["none", "auto", "required"]


@dataclass(frozen=True)
class Tool:
    """A function. `parameters` is the JSON schema of its arguments; a strict one is kept by grammar."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    is_strict: bool = False

    def as_dict(self) -> dict[str, Any]:
        """As chat templates take it."""
        function: dict[str, Any] = {"name": self.name}
        if self.description is not None:
            function["description"] = self.description
        function["parameters"] = self.parameters or {"type": "object", "properties": {}}
        return {"type": "function", "function": function}


@dataclass(frozen=True)
class Offer:
    """Functions and how they may be called.

    choice       "none": not at all, nor is the model shown them; "auto": as the model likes; "required": at least once
    only         the one function that may be called, and must be; choice is "required" then
    is_parallel  whether an answer may hold several calls
    """

    tools: tuple[Tool, ...] = ()
    choice: Choice = "auto"
    only: str | None = None
    is_parallel: bool = True

    @property
    def is_open(self) -> bool:
        """Whether a call may come."""
        return bool(self.tools) and self.choice != "none"

    @property
    def callable_tools(self) -> tuple[Tool, ...]:
        """The functions that may be called."""
        return tuple(t for t in self.tools if self.is_open and self.only in (None, t.name))


NOTHING = Offer()


def make_offer(tools: tuple[Tool, ...], choice: Choice, only: str | None, is_parallel: bool) -> Offer:
    """An offer that makes sense; ApiError for names that are given twice, and a choice of what is not there."""
    names = [tool.name for tool in tools]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise bad_request("tools", f"{names.count(twice)} functions named {twice}", "unique names of functions")
    if choice == "required" and not tools:
        raise bad_request("tools", "nothing", "a list of functions, since tool_choice asks for a call")
    if only is not None and only not in names:
        raise bad_request("tool_choice", as_given(only), "the name of one of the tools")
    return Offer(tools, choice, only, is_parallel)
