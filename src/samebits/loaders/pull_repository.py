"""Pulling a model of the hub: all its files from one commit into a folder of the cache, visible when it is whole."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from samebits.core.errors import BadInput
from samebits.loaders.cache import cache_dir
from samebits.loaders.download import FetchFailed, download, locked
from samebits.loaders.hub_files import beside, gguf_files, is_folder, listing
from samebits.loaders.hub_names import HubName
from samebits.loaders.integrity import Damaged, Progress, is_checked, note_checked
from samebits.loaders.manifest import Manifest, PulledFile, read_manifest, write_manifest
from samebits.loaders.safetensors_dir import INDEX, SINGLE, shard_names

SPARE_BYTES = 16 << 20  # of the disk: notes, and what others write meanwhile


def pull_repository(name: HubName, progress: Progress) -> Path:
    """What a loader opens of the model, fetched if it is not there yet; FetchFailed, BadInput or OSError otherwise.

    A model that is there and whole is taken as it is, whatever the hub has by now.
    """
    folder = cache_dir() / name.folder
    if (manifest := _whole(folder)) is not None:
        return manifest.path(folder)
    with locked(folder):
        if (manifest := _whole(folder)) is None:  # else another pull was faster
            manifest = _fetch(name, folder, progress)
            write_manifest(folder, manifest)
        return manifest.path(folder)


def _whole(folder: Path) -> Manifest | None:
    """The model in a folder, every file of it with its size and checksum; None if there is none such."""
    manifest = read_manifest(folder)
    return None if manifest is None or _missing(folder, manifest.files) else manifest


def _missing(folder: Path, files: Iterable[PulledFile]) -> list[PulledFile]:
    """Those that are not there, or not as they must be; files that were checked before are not read again."""
    return [file for file in files if not _is_there(folder / file.path, file)]


def _is_there(path: Path, file: PulledFile) -> bool:
    if not path.is_file():
        return False
    if file.sha256 is None:
        return file.problem(path) is None
    before = path.stat()
    if is_checked(path, file.sha256):
        return True
    if file.problem(path) is not None:
        return False
    note_checked(path, file.sha256, before)
    return True


def _fetch(name: HubName, folder: Path, progress: Progress) -> Manifest:
    """Fetches what is missing; the caller holds the folder's lock."""
    commit, files = listing(name)
    folder.mkdir(exist_ok=True)
    fetcher = _Fetcher(name, commit, folder, progress)
    if not is_folder(name, files):
        wanted = gguf_files(name, files)
        fetcher.fetch([files[path] for path in wanted])
        return Manifest(name.text, commit, wanted[0], tuple(files[path] for path in wanted))
    is_single = SINGLE in files  # a loader does not read the index then
    small = [files[path] for path in (*beside(files), *([] if is_single else [INDEX])) if path in files]
    fetcher.fetch(small)
    shards = [SINGLE] if is_single else shard_names(folder)
    if absent := next((shard for shard in shards if shard not in files), None):
        raise BadInput(name.text, INDEX, f"the shard {absent[:80]!r}", "shards that the repository has")
    weights = [files[shard] for shard in shards]
    fetcher.fetch(weights)
    return Manifest(name.text, commit, "", (*small, *weights))


class _Fetcher:
    """Fetches files of one commit into a folder, with one account of bytes for them all."""

    def __init__(self, name: HubName, commit: str, folder: Path, progress: Progress) -> None:
        self._name, self._commit, self._folder, self._progress = name, commit, folder, progress

    def fetch(self, files: list[PulledFile]) -> None:
        """Puts every file in its place that is not there yet; FetchFailed before any byte where there is no room."""
        total = sum(file.num_bytes for file in files)
        missing = _missing(self._folder, files)
        done = total - sum(file.num_bytes for file in missing)
        self._check_room(missing)
        for file in missing:
            target = self._folder / file.path
            target.parent.mkdir(parents=True, exist_ok=True)
            report = partial(self._report, done, total)
            check = partial(_check, file)
            address = self._name.file_address(file.path, self._commit)
            download(address, target, report, check, file.num_bytes)
            if file.sha256 is not None:
                note_checked(target, file.sha256, target.stat())
            done += file.num_bytes

    def _report(self, before: int, all_bytes: int, step: str, num_bytes: int, total: int | None) -> None:
        """A file's progress as that of all."""
        self._progress(step, before + num_bytes, all_bytes)

    def _check_room(self, missing: list[PulledFile]) -> None:
        begun = sum(_size(self._folder / f"{file.path}.part") for file in missing)
        needed = sum(file.num_bytes for file in missing) - begun
        free = shutil.disk_usage(self._folder).free
        if missing and needed + SPARE_BYTES > free:
            what = f"{needed} bytes to fetch; there is room for {max(0, free - SPARE_BYTES)}"
            raise FetchFailed(f"{self._name.text}: {what} in {self._folder.parent}")


def _check(file: PulledFile, path: Path) -> None:
    """Damaged unless the file at `path` is the one that the hub listed."""
    if (problem := file.problem(path)) is not None:
        raise Damaged(f"{path}: it {problem}")


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0
