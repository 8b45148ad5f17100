"""lm-eval's own command, which knows the model `samebits` then."""

from __future__ import annotations

import sys
from importlib.util import find_spec

from samebits.core.installing import install_command

if find_spec("lm_eval") is None:
    sys.exit(f"error: lm-eval is not installed; needs {install_command('lm-eval')}")

from lm_eval.__main__ import cli_evaluate

import samebits.lm_eval.model  # noqa: F401

if __name__ == "__main__":
    cli_evaluate()
