"""The state folder, which holds the history of conversations and notes of running servers."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from samebits.core.errors import BadInput


def state_dir() -> Path:
    """Return the folder `samebits` in the state folder, not created. Raise BadInput if there is no home folder."""
    try:
        if sys.platform == "darwin":
            return Path.home() / "Library" / "Application Support" / "samebits"
        return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "samebits"
    except RuntimeError:  # a container's user may have no entry in the password file
        raise BadInput("state folder", "HOME", "nothing", "the path of your home folder") from None
