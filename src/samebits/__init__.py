"""Samebits: an LLM inference engine whose answers have the same bits under any load."""

from typing import TYPE_CHECKING

from samebits.core.numerics import NUMERICS_VERSION

try:
    from samebits._version import __version__  # written at install time
except ImportError:  # the source tree runs as it is
    from samebits.core.source_version import source_version

    __version__ = source_version()

__all__ = [
    "LLM",
    "NUMERICS_VERSION",
    "AsyncLLM",
    "BadInput",
    "Completion",
    "OutOfMemory",
    "Piece",
    "RequestFailed",
    "RequestOutput",
    "SamebitsError",
    "SamplingParams",
    "Unavailable",
    "UnknownName",
    "Unsupported",
    "__version__",
    "functional",
]

if TYPE_CHECKING:
    from samebits.api import functional
    from samebits.api.async_llm import AsyncLLM
    from samebits.api.llm import LLM, SamplingParams
    from samebits.api.outputs import Completion, Piece, RequestFailed, RequestOutput
    from samebits.core.errors import BadInput, OutOfMemory, SamebitsError, Unavailable, UnknownName, Unsupported
else:  # loaded on first use, so that `import samebits` stays quick
    from importlib import import_module

    _ERRORS = ("BadInput", "OutOfMemory", "SamebitsError", "Unavailable", "UnknownName", "Unsupported")
    _LATER = {
        "AsyncLLM": "samebits.api.async_llm",
        "Completion": "samebits.api.outputs",
        "LLM": "samebits.api.llm",
        "Piece": "samebits.api.outputs",
        "RequestFailed": "samebits.api.outputs",
        "RequestOutput": "samebits.api.outputs",
        "SamplingParams": "samebits.api.llm",
        "functional": "samebits.api.functional",
        **dict.fromkeys(_ERRORS, "samebits.core.errors"),
    }

    def __getattr__(name):
        if name not in _LATER:
            raise AttributeError(f"module 'samebits' has no attribute {name!r}")
        module = import_module(_LATER[name])
        return module if name == "functional" else getattr(module, name)
