"""Samebits: an LLM inference engine whose answers have the same bits under any load."""

from samebits.core.numerics import NUMERICS_VERSION

__version__ = "0.1.0"
__all__ = ["NUMERICS_VERSION", "__version__", "functional"]


def __getattr__(name: str) -> object:
    if name == "functional":  # loaded on first use, so that `import samebits` stays quick
        from samebits.api import functional

        return functional
    raise AttributeError(f"module 'samebits' has no attribute {name!r}")
