"""What architectures are composed of: how a configuration is read, tensors, rotations, and the blocks of a graph."""

from samebits.models.parts.builder import Limits, ModelParts, cache_groups, window_groups
from samebits.models.parts.rope import ROPE_TABLE

__all__ = ["ROPE_TABLE", "Limits", "ModelParts", "cache_groups", "window_groups"]
