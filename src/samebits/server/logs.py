"""Text from outside on its way into a log: in one line, and nothing that a terminal obeys."""

from __future__ import annotations

import logging
from typing import Any

from samebits.core.printable import printable


class LineFormatter(logging.Formatter):
    """One line per record, whatever its message holds; a traceback follows in lines that are indented."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = printable(record.message, None)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:
        return "\n".join("    " + printable(line, None) for line in super().formatException(ei).splitlines())


def log_to_stderr(level: int) -> None:
    """All loggers' records from `level` on, as such lines."""
    handler = logging.StreamHandler()
    handler.setFormatter(LineFormatter("%(asctime)s %(name)s %(message)s"))
    logging.basicConfig(level=level, handlers=[handler])
