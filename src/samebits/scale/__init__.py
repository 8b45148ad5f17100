"""Many replicas of a model on Ray Serve, behind one server; needs the extra `ray`.

`samebits.scale:build_app` is for a Serve config file, which gives it arguments; `samebits.scale:app` takes none.
"""

from __future__ import annotations

from typing import Any

__all__ = ["app", "build_app"]


def build_app(args: dict[str, Any]) -> Any:
    """A Serve application, as docs/scale.md says; Unavailable where Ray is not installed."""
    from samebits.scale.needs import need_ray

    need_ray()
    from samebits.scale.application import application

    return application(args)


def __getattr__(name: str) -> Any:
    if name == "app":
        return build_app({})
    raise AttributeError(name)
