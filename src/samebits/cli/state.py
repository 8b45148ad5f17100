"""Where the command line keeps what outlives a command: the history of conversations, and notes of running servers."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def state_dir() -> Path:
    """Return the folder `samebits` in the user's state folder. It is not created."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "samebits"
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "samebits"
