"""Triton's tests, in `make test-triton`: without torch and Triton nothing is collected.

Triton decides when it is imported whether kernels are interpreted, so the tests take two runs: with TRITON_INTERPRET=1
kernels run on the host, without it they are compiled.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

ALL = {path.name for path in Path(__file__).parent.glob("test_*.py")}
COMPILED = {"test_triton_compile.py", "test_triton_ahead.py"} | {name for name in ALL if name.startswith("test_cuda_")}

if not (find_spec("torch") and find_spec("triton")):
    collect_ignore = sorted(ALL)
else:
    collect_ignore = sorted(COMPILED if os.environ.get("TRITON_INTERPRET") == "1" else ALL - COMPILED)
