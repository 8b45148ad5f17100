"""Files over https: resumable, bounded, checked, and in their place only when whole."""

from __future__ import annotations

import http.client
import json
import re
import shutil
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from samebits.core.errors import BadInput, SamebitsError
from samebits.core.systems import lock_file
from samebits.loaders.cache import check_address
from samebits.loaders.hub_names import hub_headers
from samebits.loaders.integrity import CHUNK_BYTES, Damaged, Progress

MAX_FILE_BYTES = 1 << 40
TIMEOUT_S = 30.0


class FetchFailed(SamebitsError):
    """A file could not be fetched; the text says which and why, in a line."""


class _CheckedRedirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects only to addresses we would have accepted in the first place; no token goes to another host."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        try:
            check_address(newurl)
        except BadInput:
            raise FetchFailed(f"{req.full_url}: it redirects to {newurl[:120]!r}; needs an https address") from None
        request = super().redirect_request(req, fp, code, msg, headers, newurl)
        return None if request is None else _with_token(request)


def _with_token(request: urllib.request.Request) -> urllib.request.Request:
    """The request, with the user's token where its address is the hub's own. A redirect does not carry it on."""
    for name, value in hub_headers(request.full_url).items():
        request.add_unredirected_header(name, value)
    return request


def download(
    address: str,
    target: Path,
    progress: Progress,
    check: Callable[[Path], None] | None = None,
    max_bytes: int = MAX_FILE_BYTES,
) -> None:
    """Puts the file at `address` in `target`, from where an earlier try stopped; the caller holds the lock.

    The part so far stays in `target`.part when the connection breaks, and goes when `check` finds it Damaged.
    FetchFailed for what the network or the server did; OSError is about files here.
    """
    part = target.with_name(target.name + ".part")
    notes = target.with_name(target.name + ".part.json")
    _fetch(address, part, notes, progress, max_bytes)
    try:
        if check is not None:
            check(part)
    except Damaged as error:
        part.unlink()
        notes.unlink(missing_ok=True)
        raise FetchFailed(str(error).replace(str(part), address, 1)) from None
    part.replace(target)
    notes.unlink(missing_ok=True)


@contextmanager
def _network(address: str) -> Iterator[None]:
    """What fails inside is the network's or the server's fault, and is told as that."""
    try:
        yield
    except urllib.error.HTTPError as error:
        error.close()
        raise FetchFailed(f"{address}: {_refusal(error)}") from None
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise FetchFailed(f"{address}: {reason}; is the network there? Run the same command to go on") from None


def _refusal(error: urllib.error.HTTPError) -> str:
    """What the server said; the hub says more in a header."""
    said = f"the server says {error.code} {error.reason}"
    why = error.headers.get("X-Error-Code", "") if error.headers else ""
    if why in ("RepoNotFound", "GatedRepo") or error.code in (401, 403):
        return f"{said}; needs the name of a model that is there, and an HF_TOKEN where it asks for one"
    return f"{said}; needs a revision that is there" if why == "RevisionNotFound" else said


def read_small(address: str, max_bytes: int) -> bytes:
    """What is at an address, whole; FetchFailed for more than `max_bytes`."""
    with _network(address), _open(_request(address)) as response:
        data = response.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise FetchFailed(f"{address}: more than {max_bytes} bytes; needs an answer within that limit")
    return bytes(data)


def _request(address: str) -> urllib.request.Request:
    return _with_token(
        urllib.request.Request(address, headers={"User-Agent": "samebits", "Accept-Encoding": "identity"})
    )


def _open(request: urllib.request.Request) -> Any:
    return urllib.request.build_opener(_CheckedRedirects).open(request, timeout=TIMEOUT_S)


class _Body:
    """A response's bytes; whatever breaks in reading them is the network's."""

    def __init__(self, response: Any, address: str) -> None:
        self._response, self._address = response, address

    def read(self, num_bytes: int) -> bytes:
        with _network(self._address):
            return bytes(self._response.read(num_bytes))


def _fetch(address: str, part: Path, notes: Path, progress: Progress, max_bytes: int) -> None:
    validator = _validator_of(notes, address) if part.is_file() else None
    offset = part.stat().st_size if validator else 0
    request = _request(address)
    if offset and validator:
        request.add_header("Range", f"bytes={offset}-")
        request.add_header("If-Range", validator)
    with _network(address):
        try:
            response = _open(request)
        except urllib.error.HTTPError as error:
            if error.code != 416 or not offset:
                raise
            error.close()
            response = None
    if response is None:
        part.unlink()  # longer than the file there: begin again
        return _fetch(address, part, notes, progress, max_bytes)
    with response:
        offset = _resumed_at(response, offset, address)
        total = _total_bytes(response, offset)
        _check_room(address, part, offset, total, max_bytes)
        notes.write_text(json.dumps({"address": address, "validator": _validator_in(response)}), encoding="utf-8")
        with part.open("r+b" if offset else "wb") as out:
            if offset:
                out.truncate(offset)
                out.seek(offset)
            num_bytes = copy_bounded(
                _Body(response, address), out, offset, max_bytes, address, lambda n: progress("fetching", n, total)
            )
    if total is not None and num_bytes != total:
        raise FetchFailed(f"{address}: got {num_bytes} of {total} bytes; run the same command to go on")
    return None


def copy_bounded(
    source: _Body | IO[bytes], out: IO[bytes], done: int, limit: int, name: str, report: Callable[[int], None]
) -> int:
    """Copies all of `source`, at most up to `limit` bytes in all; returns how many there are then."""
    while chunk := source.read(CHUNK_BYTES):
        done += len(chunk)
        if done > limit:
            raise FetchFailed(f"{name}: more than {limit} bytes; needs a file within that limit")
        out.write(chunk)
        report(done)
    return done


@contextmanager
def locked(target: Path) -> Iterator[None]:
    """Hold the lock of `target`, so that two pulls of a file take turns. Make its folder."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.with_name(target.name + ".lock").open("w") as lock:
        lock_file(lock)
        yield


def _validator_of(notes: Path, address: str) -> str | None:
    """What tells whether the file at the address is still the one we have a part of."""
    try:
        found = json.loads(notes.read_text(encoding="utf-8"))
        value = found["validator"] if found["address"] == address else None
        return value if isinstance(value, str) and value.isprintable() else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _validator_in(response: Any) -> str | None:
    tag = response.headers.get("ETag")
    return tag if tag and not tag.startswith("W/") else response.headers.get("Last-Modified")


def _resumed_at(response: Any, offset: int, address: str) -> int:
    """Where the response's bytes belong: `offset` when the server goes on there, 0 when it begins again."""
    if response.status != 206:
        return 0
    found = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
    if found is None or int(found[1]) != offset:
        raise FetchFailed(f"{address}: the server answers with another range than asked for")
    return offset


def _total_bytes(response: Any, offset: int) -> int | None:
    length = response.headers.get("Content-Length")
    return offset + int(length) if length and length.isascii() and length.isdigit() else None


def _check_room(address: str, part: Path, offset: int, total: int | None, max_bytes: int) -> None:
    if total is None:
        return
    if total > max_bytes:
        raise FetchFailed(f"{address}: {total} bytes; needs a file of at most {max_bytes}")
    free = shutil.disk_usage(part.parent).free
    if total - offset > free:
        raise FetchFailed(f"{address}: {total - offset} bytes to fetch; there is room for {free} in {part.parent}")
