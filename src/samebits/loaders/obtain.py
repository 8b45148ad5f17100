"""A model's file at hand: found here, or fetched with a bar where someone is looking. And which are at hand."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from samebits.core.errors import NotFound, SamebitsError
from samebits.loaders.cache import cache_dir, cached_path, pulled_path, resolve
from samebits.loaders.catalog import MODELS, HubModel
from samebits.loaders.integrity import Progress, is_checked, known_files, note_path
from samebits.loaders.manifest import read_manifest

OLD_IDENTITY_NOTE = ".identity.json"  # of earlier versions, which wrote it beside models
# what is appended to the name of the file that a note is about
NOTES = (".lock", ".used", ".part", ".part.json", ".checked.json", OLD_IDENTITY_NOTE)


def obtain(model: str | Path, progress: Progress | None = None) -> Path:
    """The local file or folder of a model, fetched if it is one that we can fetch; notes that it is used.

    progress  is told of bytes; if absent, a bar shows them on standard error where that is a terminal
    """
    if isinstance(model, Path) or is_at_hand(model):
        path = resolve(model)
    else:
        from samebits.loaders.pull import pull  # it imports network libraries, which a model at hand does not need
        from samebits.loaders.pull_bar import PullBar

        if progress is not None:
            path = pull(model, progress)
        else:
            with PullBar() as bar:
                path = pull(model, bar.report)
    _note_used(path)
    return path


def is_at_hand(model: str) -> bool:
    """Whether nothing needs to be fetched, nor a checksum to be computed, before the model is opened."""
    cached = cached_path(model)
    if cached is None:
        return True
    pulled = pulled_path(cached)
    if pulled is None:
        return False
    return all(is_checked(file, sha256) for file, sha256 in known_files(pulled))


@dataclass(frozen=True)
class CachedModel:
    """A model of the cache.

    name      by which it can be asked for
    entry     its file or folder in the cache
    format    the format that most of its bytes are in, or what is wrong with it
    used      when it was opened last, in seconds since 1970; None if never
    """

    name: str
    entry: Path
    path: Path
    num_bytes: int
    format: str
    used: float | None


def cached_models() -> list[CachedModel]:
    """What is in the cache, by name; a model of which only parts are there is not."""
    return sorted(_cached_models(), key=lambda model: model.name)


def _cached_models() -> Iterator[CachedModel]:
    folder = cache_dir()
    for entry in sorted(folder.iterdir()) if folder.is_dir() else ():
        is_model = entry.is_dir() or (entry.is_file() and not entry.name.endswith(NOTES))
        path = pulled_path(entry) if is_model and not entry.name.startswith(".") else None
        if path is not None:
            yield CachedModel(_name(entry), entry, path, _num_bytes(entry), _format(path), _used(entry))


def remove(model: str) -> CachedModel:
    """Takes a model out of the cache: by a name, an address or a listed path; NotFound if it is not there.

    A process that has it open keeps what it opened.
    """
    from samebits.loaders.download import locked

    cached = None if Path(model).is_absolute() else cached_path(model)
    found = [m for m in cached_models() if m.entry == cached or model in (m.name, str(m.path), m.entry.name)]
    if not found:
        names = ", ".join(m.name for m in cached_models()) or "nothing"
        raise NotFound("remove", "model", f"no model {model[:200]!r} in the cache, which holds {names}")
    entry = found[0].entry
    with locked(entry):
        if entry.is_dir():
            trash = entry.with_name(f".{entry.name}.removed")
            shutil.rmtree(trash, ignore_errors=True)
            entry.replace(trash)  # gone at once for readers
            shutil.rmtree(trash)
        else:
            entry.unlink()
            note_path(entry).unlink(missing_ok=True)
    for note in (_used_path(entry), entry.with_name(entry.name + OLD_IDENTITY_NOTE)):
        note.unlink(missing_ok=True)
    return found[0]


def _name(entry: Path) -> str:
    manifest = read_manifest(entry) if entry.is_dir() else None
    for name, model in MODELS.items():
        stated = model.address if isinstance(model, HubModel) else model.file_name
        if stated == (manifest.name if manifest else entry.name):
            return name
    return manifest.name if manifest else entry.name


def _num_bytes(entry: Path) -> int:
    files = entry.rglob("*") if entry.is_dir() else [entry]
    return sum(file.stat().st_size for file in files if file.is_file())


def _format(path: Path) -> str:
    from samebits.loaders.files import open_file  # all readers of files, which finding a model does not need

    sizes: Counter[str] = Counter()
    try:
        for tensor in open_file(path).tensors.values():
            sizes[tensor.format] += tensor.num_bytes
    except SamebitsError:
        return "unreadable"
    return sizes.most_common(1)[0][0] if sizes else "nothing"


def _used_path(entry: Path) -> Path:
    return entry.with_name(f"{entry.name}.used")


def _used(entry: Path) -> float | None:
    try:
        return _used_path(entry).stat().st_mtime
    except OSError:
        return None


def _note_used(path: Path) -> None:
    """Of something in the cache; nothing where it cannot be written."""
    root = cache_dir()
    if root in path.parents:
        with suppress(OSError):
            _used_path(root / path.relative_to(root).parts[0]).touch()
