"""Makes tests/models/data/ropes.json: rotations as config.json files state them, and what transformers makes of each.

    pip install torch==2.13.0 transformers==5.23.0 numpy, then
    PYTHONPATH=src:tests/models python tools/ask_transformers_ropes.py

`tests/models/test_rope_answers.py` compares our reader with this file, and with transformers itself where that is
installed. `null` stands where transformers refuses the keys or fails.
"""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import transformers
from drawn_ropes import NAMES, drawn_keys
from transformers_ropes import transformers_rotations

OUT = Path(__file__).parents[1] / "tests" / "models" / "data" / "ropes.json"
ROWS_EACH = 36  # of an architecture
DIGITS = 8  # significant ones of a float32 frequency


def main() -> None:
    rows = []
    for name in NAMES:
        random = Random(name)
        for _ in range(ROWS_EACH):
            keys = drawn_keys(random, name)
            rows.append([name, keys, _rounded(transformers_rotations(name, json.loads(json.dumps(keys))))])
        answered = sum(row[2] is not None for row in rows[-ROWS_EACH:])
        print(f"{name}: {answered} of {ROWS_EACH} answered")
    lines = ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
    OUT.write_text(f'{{"transformers":"{transformers.__version__}","rows":[\n{lines}\n]}}\n')


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list) else value


if __name__ == "__main__":
    main()
