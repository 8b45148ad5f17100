"""Imported before anything of ours: in the child that atheris guides, our modules count what they execute."""

from __future__ import annotations

import sys
from typing import Any

if "atheris" in sys.argv:
    atheris: Any = __import__("atheris")
    atheris.instrument_imports(include=["samebits.loaders", "samebits.server"]).__enter__()
