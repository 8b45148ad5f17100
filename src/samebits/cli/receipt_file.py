"""--receipt and --sign-key: receipts of answers as they come, a line of JSON each."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from samebits.cli import flags
from samebits.core.errors import BadInput
from samebits.core.files import check_target

if TYPE_CHECKING:
    from samebits.receipts.record import Receipt

ReceiptPath = Annotated[
    Path | None,
    flags.Option("--receipt", help="Write a receipt of every answer to this file, one a line: samebits replay."),
]
SignKey = Annotated[
    Path | None, flags.Option("--sign-key", help="Sign receipts with the Ed25519 private key in this PEM file.")
]


class ReceiptFile:
    """A file of receipts, made anew by the first of them."""

    def __init__(self, path: Path, key_path: Path | None) -> None:
        """BadInput, before any model is loaded, for a file that cannot be written or a key that is none."""
        check_target("receipt", "--receipt", path)
        self._path, self._key, self._mode = path, None, "wb"
        if key_path is not None:
            from samebits.receipts.signing import read_private_key

            self._key = read_private_key(key_path)

    def add(self, receipts: Iterable[Receipt | None]) -> None:
        """Writes those that there are; an answer that failed has none."""
        from samebits.receipts.signing import sign

        lines = [(sign(r, self._key) if self._key else r).to_json() + b"\n" for r in receipts if r is not None]
        try:
            with self._path.open(self._mode) as stream:
                stream.write(b"".join(lines))
        except OSError as error:
            given = error.strerror or error
            raise BadInput("receipt", str(self._path), given, "a file that can be written") from error
        self._mode = "ab"


def receipt_file(path: Path | None, key_path: Path | None) -> ReceiptFile | None:
    """The file that the options ask for; BadInput for a key without one."""
    if path is None:
        if key_path is not None:
            raise BadInput("receipt", "--sign-key", key_path, "--receipt as well")
        return None
    return ReceiptFile(path, key_path)
