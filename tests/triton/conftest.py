"""Triton's tests: nothing is collected where torch or Triton is missing (`make test-triton` has both)."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("torch") and find_spec("triton") else ["test_*.py"]
