"""What architectures are composed of: how a configuration is read, tensors, rotations, and the blocks of a graph."""

from samebits.models.parts.builder import Limits, ModelParts, StepGraph
from samebits.models.parts.rope import ROPE_TABLE

__all__ = ["ROPE_TABLE", "Limits", "ModelParts", "StepGraph"]
