"""Helpers of other folders: runs of checkpoints, and a writer of small GGUF files."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / folder) for folder in ("models", "loaders")]
