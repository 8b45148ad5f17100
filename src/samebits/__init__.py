"""Samebits: an LLM inference engine whose answers have the same bits under any load."""

from typing import TYPE_CHECKING

from samebits.core.numerics import NUMERICS_VERSION

__version__ = "0.1.0"
__all__ = ["LLM", "NUMERICS_VERSION", "SamplingParams", "__version__", "functional"]

if TYPE_CHECKING:
    from samebits.api import functional
    from samebits.api.llm import LLM, SamplingParams
else:  # loaded on first use, so that `import samebits` stays quick
    from importlib import import_module

    _LATER = {"LLM": "samebits.api.llm", "SamplingParams": "samebits.api.llm", "functional": "samebits.api.functional"}

    def __getattr__(name):
        if name not in _LATER:
            raise AttributeError(f"module 'samebits' has no attribute {name!r}")
        module = import_module(_LATER[name])
        return module if name == "functional" else getattr(module, name)
