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
from samebits.core.printable import printable
from samebits.loaders.cache import cached_path, pulled_path

if TYPE_CHECKING:
    from samebits.api.llm import LLM
    from samebits.receipts.record import Receipt
    from samebits.receipts.verdict import Verdict

MAX_FILE_BYTES, MAX_FILE_LINES = 1 << 30, 1 << 20
SMALLEST_SIZE_CLASS, SIZE_CLASS_RATIO = 4096, 4  # tokens of receipts that one loaded model checks
DIFFERS, NOT_CHECKED = 1, 3  # exit statuses


@dataclass
class Entry:
    """A receipt of a file, as far as it could be read, and what was found."""

    where: str
    receipt: Receipt | None
    verdict: Verdict | None


@dataclass(frozen=True)
class Group:
    """The setting that several receipts share: one model in one arithmetic, with memory for answers of one size class.

    model        as `load_model` takes it; the receipts' own name for it if the caller gave none
    max_tokens   the most tokens, prompt and answer, of this size class: a receipt with very many must not make all
                 others need a model with so much memory
    """

    model: str
    tier: str
    k_format: str
    v_format: str
    max_tokens: int


def replay(
    files: Annotated[list[Path], flags.Argument(metavar="FILE...", help="Files with a receipt, or one on every line.")],
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

    Exit status: 0 if all compared tokens have the same bits, 1 if some differ or are no receipts, 2 for a mistake in
    the call, 3 if some cannot be checked here (other weights, another version, tier, context, device or build, no
    tokens, too costly) and none differs.
    """
    from samebits.backends.discovery import default_name, get

    check_target("replay", "--output", output)
    backend = get(backend or default_name()).name
    entries = [entry for file in files for entry in _entries_of_file(file)]
    if public_key is not None:
        from samebits.receipts.signing import read_public_key

        read_public_key(public_key)  # a mistake is told before a model is loaded
    for _ in checked(entries, model, backend, threads, public_key, tokens):
        pass
    for entry in entries:
        if entry.verdict is not None:
            where = printable(entry.where, max_chars=None)
            flags.echo(f"{where}: {entry.verdict.line(entry.receipt, backend)}", err=as_json)
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
    for group, members in _groups(entries, model).items():
        try:
            for llm, some in _opened(group, members, model is not None, backend, threads):
                for start in range(0, len(some), num_at_once):
                    part = some[start : start + num_at_once]
                    receipts = [e.receipt for e in part if e.receipt]
                    found = llm.replay(receipts, public_key=public_key, max_tokens=max_tokens)
                    for entry, verdict in zip(part, found, strict=True):
                        entry.verdict = verdict
                    yield len(part)
                del llm  # before the next one is loaded: there may be no memory for both
        except SamebitsError as error:  # a model that is not here, for instance: the others are checked all the same
            left = [entry for entry in members if entry.verdict is None]
            for entry in left:
                entry.verdict = unchecked(error, entry.receipt)
            yield len(left)


def status(verdicts: list[Verdict]) -> int:
    """The exit status that says how all of them ended."""
    if any(not v.is_same and v.is_checked for v in verdicts):
        return DIFFERS
    return 0 if all(v.is_same for v in verdicts) else NOT_CHECKED


def unchecked(error: SamebitsError, receipt: Receipt | None) -> Verdict:
    """Return the verdict on a receipt whose model cannot be loaded. A broken seal shows all the same."""
    from samebits.receipts.verdict import Cause, Verdict, with_seal

    verdict = Verdict(0, Cause.UNCHECKED, detail=str(error))
    return with_seal(verdict, receipt) if receipt else verdict


def read_entries(file: Path) -> Iterator[Entry]:
    """The receipts of a file: one, in any layout of JSON, or one on every line. BadInput for no file."""
    from samebits.loaders.source import read_bounded

    data = read_bounded(file, MAX_FILE_BYTES)
    if (num_lines := data.count(b"\n")) > MAX_FILE_LINES:
        raise BadInput(str(file), "file", f"{num_lines} lines", f"at most {MAX_FILE_LINES}")
    lines = data.split(b"\n")
    is_one = lines[0].strip() == b"{" or not any(line.strip() for line in lines[1:])
    for number, line in enumerate([data] if is_one else lines, 1):
        if line.strip() or is_one:
            yield _entry(str(file) if is_one else f"{file}:{number}", line)


def _entries_of_file(file: Path) -> list[Entry]:
    """Return the receipts of a file. A file of several lines without any receipt is one unreadable entry."""
    from samebits.receipts.verdict import Cause, Verdict

    entries = list(read_entries(file))
    verdicts = [entry.verdict for entry in entries if entry.verdict is not None]
    if len(entries) > 1 and len(verdicts) == len(entries) and all(v.cause is Cause.UNREADABLE for v in verdicts):
        text = f"none of its {len(entries)} lines; the first: {verdicts[0].detail}"
        return [Entry(str(file), None, Verdict(0, Cause.UNREADABLE, detail=text))]
    return entries


def _entry(where: str, data: bytes) -> Entry:
    from samebits.receipts.kinds import TooCostly
    from samebits.receipts.record import from_json
    from samebits.receipts.verdict import Cause, Verdict

    try:
        return Entry(where, from_json(data), None)
    except TooCostly as error:
        return Entry(where, None, Verdict(0, Cause.UNCHECKED, detail=str(error)))
    except BadInput as error:
        return Entry(where, None, Verdict(0, Cause.UNREADABLE, detail=str(error)))


def _groups(entries: list[Entry], model: str | None) -> dict[Group, list[Entry]]:
    """Receipts that one loaded model can check together; their model, by hash, is looked at before anything runs.

    model: as the caller named it. Then the receipts' own names for it, of which there may be very many, do not matter.
    """
    found: dict[Group, list[Entry]] = {}
    for entry in entries:
        if entry.receipt is not None:
            numerics, size = entry.receipt.numerics, SMALLEST_SIZE_CLASS
            while size < _num_tokens(entry.receipt):
                size *= SIZE_CLASS_RATIO
            name = entry.receipt.model.name if model is None else model
            group = Group(name, numerics.tier, numerics.k_format, numerics.v_format, size)
            found.setdefault(group, []).append(entry)
    return found


def _num_tokens(receipt: Receipt) -> int:
    return len(receipt.prompt_ids) + len(receipt.answer.token_ids)


def _stated_positions(receipt: Receipt) -> int:
    """Return the positions of the rotary tables; an old receipt states the context alone, which is often the same."""
    return receipt.numerics.max_positions or receipt.context_len


def _opened(
    group: Group, members: list[Entry], is_given: bool, backend: str, threads: int | None
) -> Iterator[tuple[LLM, list[Entry]]]:
    """Yield the model with the members that it can check.

    A model with longrope has other angles in longer contexts: then it is opened once for each of the members' contexts,
    and no larger than their angles ask for.
    """
    from samebits.cli.model_options import fetch_if_missing, load_model
    from samebits.loaders.obtain import obtain
    from samebits.models.checkpoint import open_checkpoint

    if not is_given:  # a receipt may come from anyone: its name is looked for in the cache alone, and fetches nothing
        cached = cached_path(group.model)
        if cached is None or pulled_path(cached) is None:
            raise BadInput("replay", "model", repr(group.model[:80]), "in the cache, or stated by --model")

    fetch_if_missing(group.model)
    longest = open_checkpoint(obtain(group.model)).config.context_len  # a receipt may state more: its verdict says so

    def opened(context_len: int) -> LLM:
        return load_model(
            group.model,
            backend=backend,
            numerics=group.tier,
            threads=threads,
            context_len=min(context_len, longest),
            k_format=group.k_format,
            v_format=group.v_format,
            prefill_budget="dynamic",
        )

    llm = opened(_longest(members) + 1)
    by_rotation = dict[int, list[Entry]]()
    for entry in members:
        if entry.receipt is not None:
            by_rotation.setdefault(llm.runner.rotation(_stated_positions(entry.receipt)), []).append(entry)
    here, lens = llm.runner.rotation(llm.runner.limits.max_positions), llm.runner.switch_lens
    for rotation, some in by_rotation.items():
        if rotation != here:
            del llm  # as in `checked`
            here, least = rotation, max(_longest(some) + 1, lens[rotation - 1] + 1 if rotation else 1)
            llm = opened(min(least, lens[rotation]) if rotation < len(lens) else least)
        yield llm, some


def _longest(members: list[Entry]) -> int:
    return max(_num_tokens(entry.receipt) for entry in members if entry.receipt)


def as_json_of(entry: Entry) -> dict[str, object]:
    """Return the receipt's own statements and the verdict on it, for JSON."""
    receipt, said = entry.receipt, dict[str, object]()
    if receipt is not None:
        said = {"context_len": receipt.context_len, "finish_reason": receipt.answer.finish_reason}
    name = receipt.model.name if receipt else None
    return {"model": name, **(entry.verdict.as_json() if entry.verdict else {}), **said}
