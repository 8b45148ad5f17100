"""What an application is made of: the model's settings, its replicas, and the server before them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from samebits.core.arguments import whole_number
from samebits.core.errors import BadInput, as_given
from samebits.engine.settings import (
    ALIASES,
    DEFAULT_GPU_SEQUENCES,
    DEFAULT_SEQUENCES,
    MAX_SIZE,
    settings_from,
    stated_settings,
    without_aliases,
)
from samebits.loaders.catalog import DEFAULT_MODEL
from samebits.server.limits import Limits

ROUTINGS = ("prefix", "power-of-two")
GPU_BACKENDS = ("cuda", "rocm")
MODEL_VARIABLE, KEY_VARIABLE = "SAMEBITS_MODEL", "SAMEBITS_API_KEY"
LLM_OPTIONS = ("model", *stated_settings(), *ALIASES)


@dataclass(frozen=True)
class Settings:
    """BadInput for what cannot be meant.

    llm              options of `LLM`, "model" among them
    num_replicas     that run at all times; None leaves it to the autoscaling settings of a Serve config file
    routing          "prefix": where most of a prompt was computed before; or "power-of-two"
    served_name      by which clients call the model; the last part of its name or path if absent
    api_key          that every route but /health asks for; SAMEBITS_API_KEY's if absent
    """

    llm: dict[str, Any] = field(default_factory=dict)
    num_replicas: int | None = None
    routing: str = ROUTINGS[0]
    served_name: str | None = None
    api_key: str | None = None
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        if self.routing not in ROUTINGS:
            raise BadInput("serve", "--routing", as_given(self.routing), " or ".join(ROUTINGS))
        if self.num_replicas is not None:
            whole_number("serve", "--replicas", self.num_replicas, 1, MAX_SIZE)
        llm = without_aliases(self.llm)  # under one name each: `plan_id` looks for that
        model = llm.pop("model", None) or os.environ.get(MODEL_VARIABLE) or DEFAULT_MODEL
        settings_from(llm)  # raises here, before each replica would fail to start
        object.__setattr__(self, "llm", {**llm, "model": str(model)})
        object.__setattr__(self, "api_key", self.api_key or os.environ.get(KEY_VARIABLE))

    @property
    def name(self) -> str:
        return self.served_name or Path(self.llm["model"]).name

    @property
    def most_sequences(self) -> int:
        """The most requests that a replica runs at once; with less memory it runs fewer."""
        return self.llm.get("max_sequences") or (DEFAULT_GPU_SEQUENCES if self.num_gpus else DEFAULT_SEQUENCES)

    @property
    def num_gpus(self) -> int:
        """That a replica takes."""
        return int(self.llm.get("backend") in GPU_BACKENDS)


def from_args(args: Mapping[str, Any]) -> Settings:
    """The settings that a Serve config file's `args` state; BadInput for one that there is not."""
    own = {f.name for f in fields(Settings)} - {"llm", "limits"}
    of_limits = {f.name for f in fields(Limits)}
    known = sorted(own | of_limits | set(LLM_OPTIONS))
    for name in args:
        if name not in known:
            raise BadInput("build_app", "args", repr(name), f"one of {', '.join(known)}")
    limits = Limits(**{name: value for name, value in args.items() if name in of_limits})
    llm = {name: value for name, value in args.items() if name in LLM_OPTIONS}
    return Settings(llm=llm, limits=limits, **{name: value for name, value in args.items() if name in own})
