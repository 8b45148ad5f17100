"""One file per architecture, which states everything of it; this is the list."""

from __future__ import annotations

from samebits.models.architecture import Architecture
from samebits.models.gemma2 import GEMMA2
from samebits.models.gemma3 import GEMMA3
from samebits.models.llama import LLAMA
from samebits.models.mistral import MISTRAL
from samebits.models.phi3 import PHI3
from samebits.models.qwen2 import QWEN2
from samebits.models.qwen3 import QWEN3

ARCHITECTURES: dict[str, Architecture] = {a.name: a for a in (LLAMA, MISTRAL, QWEN2, QWEN3, GEMMA2, GEMMA3, PHI3)}
