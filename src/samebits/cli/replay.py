"""`samebits replay`: answers made again from their receipts, and compared hash by hash."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from samebits.cli import flags
from samebits.cli.output import AsJson, Output, emit
from samebits.core.errors import BadInput, SamebitsError
from samebits.core.files import check_target
from samebits.loaders.cache import cached_path, pulled_path

if TYPE_CHECKING:
    from samebits.api.llm import LLM
    from samebits.receipts.record import Receipt
    from samebits.receipts.verdict import Verdict

MAX_FILE_BYTES = 1 << 30
DIFFERS, NOT_CHECKED = 1, 3  # exit statuses


@dataclass
class Entry:
    """A receipt of a file, as far as it could be read, and what was found."""

    where: str
    receipt: Receipt | None
    verdict: Verdict | None


@dataclass(frozen=True)
class Group:
    """What receipts of one model in one arithmetic are replayed on."""

    name: str
    tier: str
    k_format: str
    v_format: str


def replay(
    files: Annotated[list[Path], flags.Argument(metavar="FILE...", help="Files with a receipt, or one on every line.")],
    model: Annotated[
        str | None, flags.Option("--model", help="The model; if absent, the one of that name in the cache.")
    ] = None,
    backend: Annotated[
        str | None, flags.Option("--backend", help="The backend to run on; the native CPU kernels if absent.")
    ] = None,
    threads: Annotated[
        int | None, flags.Option("--threads", help="Host threads that kernels may use; all of them if absent.", min=1)
    ] = None,
    tokens: Annotated[
        int | None, flags.Option("--tokens", help="Check this many tokens of every answer; all if absent.", min=1)
    ] = None,
    public_key: Annotated[
        Path | None,
        flags.Option("--public-key", help="Require a signature by the Ed25519 key whose public half is in this file."),
    ] = None,
    as_json: AsJson = False,
    output: Output = None,
) -> None:
    """Make answers again from their receipts, in one pass each, and compare every bit.

    A line says "same bits", or names the first token with a difference, the two hashes and the likely cause.

    Exit status: 0 if all have the same bits, 1 if some differ or are no receipts, 2 for a mistake in the call, 3 if
    some cannot be checked here (other weights, another version, tier, device or build) and none differs.
    """
    from samebits.backends.discovery import default_name, get

    check_target("replay", "--output", output)
    backend = get(backend or default_name()).name
    entries = [entry for file in files for entry in read_entries(file)]
    if public_key is not None:
        from samebits.receipts.signing import read_public_key

        read_public_key(public_key)  # a mistake is told before a model is loaded
    for _ in checked(entries, model, backend, threads, public_key, tokens):
        pass
    for entry in entries:
        if entry.verdict is not None:
            flags.echo(f"{entry.where}: {entry.verdict.line(entry.receipt, backend)}", err=as_json)
    emit([{"file": entry.where, **as_json_of(entry), "backend": backend} for entry in entries], as_json, output)
    sys.exit(status([entry.verdict for entry in entries if entry.verdict]))


def checked(
    entries: list[Entry],
    model: str | None,
    backend: str,
    threads: int | None,
    public_key: Path | None,
    max_tokens: int | None = None,
    num_at_once: int = sys.maxsize,
) -> Iterator[int]:
    """Gives every receipt its verdict, `num_at_once` at most in one call; yields how many more have theirs."""
    for group, members in _groups(entries).items():
        try:
            llm = _loaded(group, members, model, backend, threads)
        except SamebitsError as error:  # a model that is not here, for instance: the others are checked all the same
            for entry in members:
                entry.verdict = unchecked(error)
            yield len(members)
            continue
        for start in range(0, len(members), num_at_once):
            part = members[start : start + num_at_once]
            receipts = [e.receipt for e in part if e.receipt]
            found = llm.replay(receipts, public_key=public_key, max_tokens=max_tokens)
            for entry, verdict in zip(part, found, strict=True):
                entry.verdict = verdict
            yield len(part)


def status(verdicts: list[Verdict]) -> int:
    """The exit status that says how all of them ended."""
    if any(not v.is_same and v.is_checked for v in verdicts):
        return DIFFERS
    return 0 if all(v.is_same for v in verdicts) else NOT_CHECKED


def unchecked(error: SamebitsError) -> Verdict:
    """On a receipt whose model cannot be loaded."""
    from samebits.receipts.verdict import Cause, Verdict

    return Verdict(0, Cause.UNCHECKED, detail=str(error))


def read_entries(file: Path) -> Iterator[Entry]:
    """The receipts of a file: one, in any layout of JSON, or one on every line. BadInput for no file."""
    from samebits.loaders.source import read_bounded

    lines = read_bounded(file, MAX_FILE_BYTES).split(b"\n")
    is_one = lines[0].strip() == b"{" or not any(line.strip() for line in lines[1:])
    for number, line in enumerate([b"\n".join(lines)] if is_one else lines, 1):
        if line.strip() or is_one:
            yield _entry(str(file) if is_one else f"{file}:{number}", line)


def _entry(where: str, data: bytes) -> Entry:
    from samebits.receipts.record import from_json
    from samebits.receipts.verdict import Cause, Verdict

    try:
        return Entry(where, from_json(data), None)
    except BadInput as error:
        return Entry(where, None, Verdict(0, Cause.UNREADABLE, detail=str(error)))


def _groups(entries: list[Entry]) -> dict[Group, list[Entry]]:
    """Receipts that one loaded model can check together; their model, by hash, is looked at before anything runs."""
    found: dict[Group, list[Entry]] = {}
    for entry in entries:
        if entry.receipt is not None:
            numerics = entry.receipt.numerics
            group = Group(entry.receipt.model.name, numerics.tier, numerics.k_format, numerics.v_format)
            found.setdefault(group, []).append(entry)
    return found


def _loaded(group: Group, members: list[Entry], model: str | None, backend: str, threads: int | None) -> LLM:
    """The model that a receipt names, from the cache alone: a receipt may come from anyone, and fetches nothing."""
    from samebits.cli.model_options import load_model

    if model is None:
        cached = cached_path(group.name)
        if cached is None or pulled_path(cached) is None:
            raise BadInput("replay", "model", repr(group.name[:80]), "--model: no model of that name is in the cache")
    receipts = [entry.receipt for entry in members if entry.receipt]
    longest = max(len(r.prompt_ids) + len(r.answer.token_ids) for r in receipts)
    return load_model(
        model or group.name,
        backend=backend,
        numerics=group.tier,
        threads=threads,
        context_len=longest + 1,
        k_format=group.k_format,
        v_format=group.v_format,
        prefill_budget="dynamic",
    )


def as_json_of(entry: Entry) -> dict[str, object]:
    name = entry.receipt.model.name if entry.receipt else None
    return {"model": name, **(entry.verdict.as_json() if entry.verdict else {})}
