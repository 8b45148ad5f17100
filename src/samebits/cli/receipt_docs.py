"""Writes docs/receipt.schema.json from the record of a receipt (`make docs`); a test fails when it is stale."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from samebits.receipts.record import schema


def schema_text() -> str:
    return json.dumps(schema(), indent=1) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(schema_text(), encoding="utf-8")
