"""One file per architecture, which states everything of it; this is the list."""

from __future__ import annotations

from samebits.models.architecture import Architecture
from samebits.models.deepseek2 import DEEPSEEK2, DEEPSEEK3
from samebits.models.falcon_h1 import FALCON_H1
from samebits.models.gemma2 import GEMMA2
from samebits.models.gemma3 import GEMMA3
from samebits.models.glm4moe import GLM4MOE
from samebits.models.gpt_oss import GPT_OSS
from samebits.models.granitehybrid import GRANITEHYBRID
from samebits.models.granitemoe import GRANITEMOE
from samebits.models.lfm2 import LFM2
from samebits.models.llama import LLAMA
from samebits.models.mamba2 import MAMBA2
from samebits.models.mistral import MISTRAL
from samebits.models.mixtral import MIXTRAL
from samebits.models.nemotron_h import NEMOTRON_H, NEMOTRON_H_MOE
from samebits.models.phi3 import PHI3
from samebits.models.qwen2 import QWEN2
from samebits.models.qwen3 import QWEN3
from samebits.models.qwen3moe import QWEN3MOE
from samebits.models.qwen3next import QWEN3NEXT
from samebits.models.qwen35 import QWEN35, QWEN35MOE

DENSE = (LLAMA, MISTRAL, QWEN2, QWEN3, GEMMA2, GEMMA3, PHI3)
EXPERTS = (MIXTRAL, QWEN3MOE, GRANITEMOE, GLM4MOE, GPT_OSS)
LATENT = (DEEPSEEK2, DEEPSEEK3)
HYBRID = (QWEN3NEXT, QWEN35, QWEN35MOE, MAMBA2, LFM2, GRANITEHYBRID, FALCON_H1, NEMOTRON_H_MOE, NEMOTRON_H)
ARCHITECTURES: dict[str, Architecture] = {a.name: a for a in (*DENSE, *EXPERTS, *LATENT, *HYBRID)}
