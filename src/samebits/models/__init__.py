"""One file per architecture, which states everything of it; this is the list."""

from __future__ import annotations

from samebits.models.architecture import Architecture
from samebits.models.deepseek2 import DEEPSEEK2, DEEPSEEK3
from samebits.models.falcon_h1 import FALCON_H1
from samebits.models.gemma2 import GEMMA2
from samebits.models.gemma3 import GEMMA3
from samebits.models.granitehybrid import GRANITEHYBRID
from samebits.models.lfm2 import LFM2
from samebits.models.llama import LLAMA
from samebits.models.mamba2 import MAMBA2
from samebits.models.mistral import MISTRAL
from samebits.models.nemotron_h import NEMOTRON_H
from samebits.models.phi3 import PHI3
from samebits.models.qwen2 import QWEN2
from samebits.models.qwen3 import QWEN3
from samebits.models.qwen3next import QWEN3NEXT
from samebits.models.qwen35 import QWEN35

DENSE = (LLAMA, MISTRAL, QWEN2, QWEN3, GEMMA2, GEMMA3, PHI3)
LATENT = (DEEPSEEK2, DEEPSEEK3)
HYBRID = (QWEN3NEXT, QWEN35, MAMBA2, LFM2, GRANITEHYBRID, FALCON_H1, NEMOTRON_H)
ARCHITECTURES: dict[str, Architecture] = {a.name: a for a in (*DENSE, *LATENT, *HYBRID)}
