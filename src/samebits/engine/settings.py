"""`EngineSettings`: every setting of a model on a backend, stated once.

`LLM`, `AsyncLLM`, the commands, the server's replicas and Ray's config derive their options from the fields: their
types, defaults, bounds, help, flags and environment variables. Importing this module imports no engine.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import NoneType
from typing import Any, TypedDict

from samebits.core.arguments import flag, real_number, whole_number
from samebits.core.errors import BadInput
from samebits.core.sampling_defaults import MODEL, check_sampling_defaults
from samebits.core.stated import Setting, defaults_of, settings_of, stated
from samebits.core.tiers import Tier

MAX_SIZE = 2**31 - 1
MAX_DIGITS = 9  # of a prefill budget; Python refuses to read thousands of digits
MAX_STEP_TOKENS = 1 << 20
MAX_MEMORY_BYTES = 2**63 - 1
MAX_SHOWN_CHARS = 40  # of a wrong value in an error
DEFAULT_MEMORY = 0.9  # of a device's memory
DEFAULT_SEQUENCES, DEFAULT_GPU_SEQUENCES = 32, 128
PREFILL_WORDS = ("dynamic", "off")
UNITS = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
MEMORY_TEXT = re.compile(r"(\d*\.?\d+)\s*(?:([KMGT])(?:i?B)?)?", re.IGNORECASE)


def _size(default: int | None, help: str, *flags: str, low: int = 1, high: int = MAX_SIZE) -> Any:
    return stated(default, help, *flags, low=low, high=high, panel="Engine")


def _budget(text: str) -> int | str:
    """Return the prefill budget that a text means: a number, or a word."""
    return int(text) if text.isdecimal() and len(text) <= MAX_DIGITS else text


@dataclass(frozen=True)
class EngineSettings:
    """All settings of a model on a backend. Raises BadInput for a value out of bounds."""

    backend: str | None = stated(
        None, "The backend to run on, by name or as module:Class; the native CPU kernels if absent.", "--backend"
    )
    numerics: str | None = stated(
        None,
        "The tier: fast, invariant or portable; if absent, the strongest of the last two that every op has.",
        "--numerics",
    )
    threads: int | None = stated(
        None,
        "Use at most this many host threads, fewer while that is faster; all processors if absent.",
        "--threads",
        "-t",
        low=1,
        high=MAX_SIZE,
    )
    context_len: int | None = stated(
        None,
        "The most tokens that a sequence may have; if absent, the model's own context, or less if memory is short.",
        "--context-len",
        "-c",
        "--ctx-size",
        "--max-model-len",
        low=1,
        high=MAX_SIZE,
    )
    k_format: str = stated("f16", "The format of cached keys.", "--k-format")
    v_format: str = stated("f16", "The format of cached values.", "--v-format")
    memory: float | str | None = stated(
        None,
        "Memory for weights, workspace and pages: a fraction of the device's, or a size such as 12G; 0.9 if absent. On "
        "a CPU pages take at most a quarter of free memory, unless a size is given.",
        "--memory",
        panel="Engine",
    )
    max_sequences: int | None = _size(
        None,
        f"Requests that run at once; others wait in the queue. If absent, {DEFAULT_SEQUENCES}, and "
        f"{DEFAULT_GPU_SEQUENCES} on a GPU, or fewer if memory is short.",
        "--max-sequences",
        high=4096,
    )
    num_pages: int | None = _size(
        None, "Pages of KV memory; if absent, as many as memory allows and can be used.", "--num-pages", low=2
    )
    page_size: int = _size(16, "Tokens per page of KV memory.", "--page-size", high=4096)
    max_batch_tokens: int | None = _size(
        None,
        "The number of tokens that a step aims at; if absent, 512, and 2048 on a GPU.",
        "--max-batch-tokens",
        high=MAX_STEP_TOKENS,
    )
    prefill_budget: int | str = stated(
        "dynamic",
        "Prompt tokens that a step may take while answers are under way: a number, dynamic or off.",
        "--prefill-budget",
        low=1,
        high=MAX_STEP_TOKENS,
        panel="Engine",
        parse=_budget,
    )
    share_prefixes: bool = stated(True, "Keep pages of prompts for later ones that start the same.")
    speculate: str | None = stated(
        None,
        "Guess tokens and verify several at a time, which changes no bit: ngram, or draft:MODEL.",
        "--speculate",
        panel="Engine",
    )
    sampling_defaults: str = stated(
        MODEL,
        "Draw with the model's own temperature and filters (model), or from its probabilities as they are (neutral), "
        "where a request does not say.",
        "--sampling-defaults",
    )

    def __post_init__(self) -> None:
        for name, (kinds, setting) in stated_settings().items():
            if (value := getattr(self, name)) is not None or NoneType not in kinds:
                object.__setattr__(self, name, _checked(name, value, kinds, setting))

    @property
    def memory_limit(self) -> int | float | None:
        """`memory`, or SAMEBITS_MEMORY's, as bytes (int) or as a fraction (float); None if both are absent."""
        limit = self.memory
        if limit is None and (variable := stated_settings()["memory"][1].variable):
            limit = os.environ.get(variable) or None
        return None if limit is None else read_memory("LLM", limit)


class EngineOptions(TypedDict, total=False):
    """The fields of EngineSettings as keyword arguments, for type checkers; a test compares the two."""

    backend: str | None
    numerics: str | None
    threads: int | None
    context_len: int | None
    k_format: str
    v_format: str
    memory: float | str | None
    max_sequences: int | None
    num_pages: int | None
    page_size: int
    max_batch_tokens: int | None
    prefill_budget: int | str
    share_prefixes: bool
    speculate: str | None
    sampling_defaults: str
    max_model_len: int | None


ALIASES = {"max_model_len": "context_len"}  # names of other engines


def stated_settings() -> dict[str, tuple[tuple[Any, ...], Setting]]:
    """Return the types and the Setting of each field of EngineSettings, in order."""
    return settings_of(EngineSettings)


def documented(kind: Any) -> None:
    """Give a class whose `__init__` takes EngineOptions a signature and a docstring that list them."""
    own = inspect.signature(kind.__init__)
    keywords = [p for p in own.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    default = defaults_of(EngineSettings)
    added = [inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY, default=default[n]) for n in stated_settings()]
    kind.__init__.__signature__ = own.replace(parameters=[*keywords, *added])
    lines = (f"    {name:16}  {setting.help}" for name, (_, setting) in stated_settings().items())
    kind.__doc__ = f"{kind.__doc__}\n    Options:\n" + "\n".join(lines) + "\n"


def without_aliases(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options under our own names. Raise BadInput for one setting under two names."""
    chosen = dict(options)
    for alias, name in ALIASES.items():
        if (value := chosen.pop(alias, None)) is not None:
            if chosen.get(name) is not None:
                raise BadInput("LLM", f"{name} and {alias}", "both", "one of them: they mean the same")
            chosen[name] = value
    return chosen


def settings_from(options: Mapping[str, Any]) -> EngineSettings:
    """Make settings from keyword arguments, other engines' names included.

    Raise BadInput for a wrong value or one setting under two names, TypeError for an unknown name.
    """
    chosen = without_aliases(options)
    known = stated_settings()
    unknown = next((name for name in chosen if name not in known), None)
    if unknown is not None:
        raise TypeError(f"LLM() got an unexpected keyword argument {unknown!r}; known: {', '.join(known)}")
    return EngineSettings(**chosen)


def read_memory(where: str, value: Any) -> int | float:
    """Return bytes (int) for a size such as "12G", or a fraction (float) for a number from 0 to 1.

    Raise BadInput for anything else.
    """
    needed = "a fraction above 0 and up to 1, or a size such as 12G"
    text = value.strip() if isinstance(value, str) else None
    if text is not None:
        found = MEMORY_TEXT.fullmatch(text)
        if found is None:
            raise BadInput(where, "memory", repr(value), needed)
        number, unit = float(found[1]), (found[2] or "").upper()
        if unit:
            if not 1 <= number * UNITS[unit] <= MAX_MEMORY_BYTES:
                raise BadInput(where, "memory", repr(text[:MAX_SHOWN_CHARS]), needed)
            return int(number * UNITS[unit])
        value = number
    try:
        fraction = real_number(where, "memory", value, 0, 1)
    except BadInput:
        raise BadInput(where, "memory", repr(value), needed) from None
    if not fraction > 0:
        raise BadInput(where, "memory", repr(value), needed)
    return fraction


def _checked(name: str, value: Any, kinds: tuple[Any, ...], setting: Setting) -> Any:
    """Return the value as the field's type. Raise BadInput if it is of another type or out of bounds."""
    if name == "memory":
        read_memory("LLM", value)
        return value
    if name == "sampling_defaults":
        check_sampling_defaults("LLM", value)
        return value
    if name == "prefill_budget" and isinstance(value, str):
        if value not in PREFILL_WORDS:
            raise BadInput("LLM", name, repr(value[:MAX_SHOWN_CHARS]), "'dynamic', 'off' or a number of tokens")
        return value
    if bool in kinds:
        return flag("LLM", name, value)
    if int in kinds:
        low, high = setting.low or 0, MAX_SIZE if setting.high is None else setting.high
        return whole_number("LLM", name, value, int(low), int(high))
    if not isinstance(value, str):
        raise BadInput("LLM", name, repr(value), "a name")
    if name == "numerics" and value:
        Tier.asked(value)
    return value
