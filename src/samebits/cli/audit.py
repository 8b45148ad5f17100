"""`samebits audit`: a sample of a folder of receipts, replayed, with a report for people and one for programs."""

from __future__ import annotations

import hashlib
import os
import secrets
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from samebits.cli import flags
from samebits.cli.output import AsJson, Output, console_for, emit
from samebits.cli.replay import Entry, checked, read_entries, status
from samebits.core.errors import BadInput
from samebits.core.files import write_atomically

if TYPE_CHECKING:
    from rich.console import Console

WHERE = "audit"
SUFFIXES = (".json", ".jsonl")
MAX_FILES = 1 << 20
BATCH = 256  # receipts that are replayed together, between two looks at the progress
SEED_BITS = 32
SHOWN = 20  # receipts that are not the same, in the terminal


def audit(
    folder: Annotated[Path, flags.Argument(metavar="DIR", help="A folder of receipts: .json and .jsonl files in it.")],
    sample: Annotated[
        str, flags.Option("--sample", metavar="SHARE", help="How many to replay: 5% of them, or a number.")
    ] = "100%",
    seed: Annotated[
        int | None,
        flags.Option(
            "--seed",
            help="The seed of the choice: the same seed chooses the same receipts. Drawn and reported if absent: who "
            "makes receipts must not know it.",
            min=0,
        ),
    ] = None,
    model: Annotated[
        str | None, flags.Option("--model", help="The model; if absent, the one of that name in the cache.")
    ] = None,
    backend: Annotated[
        str | None, flags.Option("--backend", help="The backend to run on; the native CPU kernels if absent.")
    ] = None,
    threads: Annotated[
        int | None,
        flags.Option(
            "--threads",
            help="Use at most this many host threads, fewer while that is faster; all processors if absent.",
            min=1,
        ),
    ] = None,
    public_key: Annotated[
        Path | None,
        flags.Option("--public-key", help="Require a signature by the Ed25519 key whose public half is in this file."),
    ] = None,
    html: Annotated[Path | None, flags.Option("--html", help="Write a report as one page to this file.")] = None,
    as_json: AsJson = False,
    output: Output = None,
) -> None:
    """Replay a sample of a folder of receipts, many in a batch, and report how they fared.

    All receipts are read; which of them are replayed follows from the seed and what they say, and not from their files'
    names or order.

    Exit status: 0 if all have the same bits, 1 if some differ or are no receipts, 2 for a mistake in the call, 3 if
    some cannot be checked here and none differs.
    """
    from samebits.backends.discovery import default_name, get
    from samebits.cli.audit_report import Audit, html_page, show

    console = console_for(WHERE, as_json, output=output, html=html)
    backend = get(backend or default_name()).name
    seed = secrets.randbits(SEED_BITS) if seed is None else seed
    entries = [entry for file in receipt_files(folder) for entry in _entries_of(file)]
    if not entries:
        raise BadInput(
            WHERE, "DIR", f"{folder}, without receipts", f"a folder with files that end with {' or '.join(SUFFIXES)}"
        )
    if public_key is not None:
        from samebits.receipts.signing import read_public_key

        read_public_key(public_key)  # a mistake is told before a model is loaded
    chosen = choose(entries, share_of(sample), seed)
    with_progress(console, chosen, model, backend, threads, public_key)
    found = Audit(str(folder), len(entries), sample, seed, backend, chosen)
    show(console, found, SHOWN)
    if html is not None:
        write_atomically(html, html_page(found))
    emit(found.as_json(), as_json, output)
    sys.exit(status([entry.verdict for entry in chosen if entry.verdict]))


def receipt_files(folder: Path) -> Iterator[Path]:
    """Return the files of receipts in a folder and those within, by name. Links are not followed.

    Raise BadInput if it is no folder, or holds too many.
    """
    if not folder.is_dir():
        raise BadInput(WHERE, "DIR", str(folder), "a folder")
    found, left, num_seen = list[Path](), [folder], 0
    while left:  # no recursion: folders may be nested very deeply
        try:
            inside = os.scandir(left.pop())
        except OSError as error:
            raise BadInput(WHERE, "DIR", f"{error.filename!r}: {error.strerror}", "folders that can be read") from None
        with inside:
            for item in inside:
                num_seen += 1
                if num_seen > MAX_FILES:
                    raise BadInput(WHERE, "DIR", f"more than {MAX_FILES} files", "fewer")
                if item.is_dir(follow_symlinks=False):
                    left.append(Path(item.path))
                elif item.is_file(follow_symlinks=False) and item.name.endswith(SUFFIXES):
                    found.append(Path(item.path))
    return iter(sorted(found))


def _entries_of(file: Path) -> Iterator[Entry]:
    """Yield the receipts of a file. A file that cannot be read is an entry too: the others are audited all the same."""
    from samebits.receipts.verdict import Cause, Verdict

    try:
        yield from read_entries(file)
    except BadInput as error:
        yield Entry(str(file), None, Verdict(0, Cause.UNREADABLE, detail=str(error)))


def share_of(sample: str) -> float | int:
    """A share of all, as a float, or a number of receipts; BadInput for anything else."""
    try:
        share = float(sample.removesuffix("%")) / 100 if sample.endswith("%") else int(sample)
    except ValueError:
        share = 0
    if not share > 0 or (isinstance(share, float) and share > 1):
        raise BadInput(WHERE, "--sample", repr(sample), "a share such as 5%, or a number of receipts")
    return share


def choose(entries: Sequence[Entry], share: float | int, seed: int) -> list[Entry]:
    """Those to replay, in their order: at least one, and all that cannot be read, which cost nothing."""

    def rank(index: int) -> tuple[bytes, int]:
        receipt = entries[index].receipt
        said = receipt.computed_sha256() if receipt else ""
        return hashlib.sha256(f"{seed} {said}".encode()).digest(), index

    readable = [i for i, entry in enumerate(entries) if entry.receipt is not None]
    count = share if isinstance(share, int) else max(1, -int(-share * len(readable) // 1))
    taken = set(sorted(readable, key=rank)[:count])
    return [entry for i, entry in enumerate(entries) if i in taken or entry.receipt is None]


def with_progress(
    console: Console,
    entries: list[Entry],
    model: str | None,
    backend: str,
    threads: int | None,
    public_key: Path | None,
) -> None:
    """Replays them; every entry has its verdict then."""
    from rich.progress import Progress

    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("replaying", total=sum(entry.receipt is not None for entry in entries))
        for num_done in checked(entries, model, backend, threads, public_key, num_at_once=BATCH):
            progress.advance(task, num_done)
