"""Builds that need no compiler, for test_compile_pool.py: the compiling process imports them too."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path

from samebits.kernels.ahead import Build


@dataclass(frozen=True)
class FileBuild(Build):
    """Writes the number of the process that makes it into a file."""

    name: str
    folder: Path

    @property
    def key(self) -> str:  # type: ignore[override]
        return self.name

    def is_built(self) -> bool:
        return (self.folder / self.name).exists()

    def build(self) -> None:
        if self.name == "refused":
            raise ValueError("some words\nand the last line")
        if self.name == "dying":
            os.kill(os.getpid(), signal.SIGKILL)
        (self.folder / self.name).write_text(str(os.getpid()))
