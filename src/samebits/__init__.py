"""Samebits: an LLM inference engine whose answers have the same bits under any load."""

from importlib import import_module

from samebits.core.numerics import NUMERICS_VERSION

__version__ = "0.1.0"
__all__ = ["LLM", "NUMERICS_VERSION", "SamplingParams", "__version__", "functional"]

# loaded on first use, so that `import samebits` stays quick
_LATER = {"LLM": "samebits.api.llm", "SamplingParams": "samebits.api.llm", "functional": "samebits.api.functional"}


def __getattr__(name: str) -> object:
    if name not in _LATER:
        raise AttributeError(f"module 'samebits' has no attribute {name!r}")
    module = import_module(_LATER[name])
    return module if name == "functional" else getattr(module, name)
