"""lm-eval's own command, which knows the model `samebits` then."""

from __future__ import annotations

import sys
from importlib.util import find_spec

if find_spec("lm_eval") is None:
    sys.exit("error: lm-eval is not installed; needs pip install 'samebits[lm-eval]'")

from lm_eval.__main__ import cli_evaluate

import samebits.lm_eval.model  # noqa: F401

if __name__ == "__main__":
    cli_evaluate()
