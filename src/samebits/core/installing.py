"""Hints on installing for errors: the command that adds an extra to this installation, and what native kernels need.

No package index has Samebits yet.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from urllib.parse import unquote, urlsplit

COMPILERS = ("c++", "g++", "clang++")
COMPILER_ADVICE = {  # sys.platform -> how to get what native kernels need
    "linux": "install a C++ compiler (on Debian: apt install g++)",
    "darwin": "run `xcode-select --install` for a C++ compiler",
    "win32": "install a win_amd64 wheel; pip on Windows cannot compile the native kernels",
}


def install_command(extra: str = "") -> str:
    """Return the pip command that installs Samebits with an extra in the way in which it was installed here."""
    try:
        return command_for(distribution("samebits"), extra)
    except PackageNotFoundError:  # the source tree runs as it is
        root = Path(__file__).parents[3]
        return _pip(str(root) if (root / "pyproject.toml").is_file() else "samebits", extra)


def native_advice() -> str:
    """Return what to do, as a clause, to get native kernels in an installation that was made without them."""
    rebuild = f"run `{_rebuilding(install_command())}`"
    if sys.platform != "win32" and has_compiler():
        return f"{rebuild} to build them (SAMEBITS_REQUIRE_NATIVE=1 shows the compiler's errors)"
    advice = COMPILER_ADVICE.get(sys.platform, "install a C++ compiler")
    return advice if sys.platform == "win32" else f"{advice}, then {rebuild}"


def has_compiler() -> bool:
    """Return whether a C++ compiler is installed. Every Mac has programs of these names, and they work only with
    Apple's developer tools."""
    if not any(shutil.which(name) for name in COMPILERS):
        return False
    if sys.platform != "darwin":
        return True
    try:
        return subprocess.run(["xcode-select", "-p"], capture_output=True).returncode == 0
    except OSError:
        return False


def _rebuilding(command: str) -> str:
    """Return the pip command with the options that replace a package of the same version, and no dependency."""
    return command.replace("pip install", "pip install --force-reinstall --no-deps --no-cache-dir", 1)


def command_for(installed: Distribution, extra: str) -> str:
    """Return the pip command for a distribution: from its checkout, its wheel, or the index it came from."""
    try:
        origin = json.loads(installed.read_text("direct_url.json") or "{}")
        address = str(origin["url"])
    except (ValueError, KeyError, TypeError, OSError):  # pip writes no such file for a package of an index
        return _pip("samebits", extra)
    is_folder = isinstance(origin.get("dir_info"), dict)
    if is_folder and urlsplit(address).scheme == "file":
        is_editable = origin["dir_info"].get("editable") is True
        return _pip(_folder_of(address), extra, ("-e",) if is_editable else ())
    if (control := origin.get("vcs_info")) is not None:
        try:
            revision = control.get("requested_revision") or control["commit_id"]
            address = f"{control['vcs']}+{address}@{revision}"
        except (AttributeError, KeyError, TypeError):
            return _pip("samebits", extra)
    if isinstance(part := origin.get("subdirectory"), str):
        address += f"#subdirectory={part}"
    return _command(["pip", "install", f"samebits{_bracketed(extra)} @ {address}"])


def _folder_of(address: str) -> str:
    """Return the path in a file: address."""
    path = unquote(urlsplit(address).path)
    return path[1:] if re.match(r"/[A-Za-z]:", path) else path  # Windows' drive comes after a slash


def _pip(target: str, extra: str, options: tuple[str, ...] = ()) -> str:
    return _command(["pip", "install", *options, target + _bracketed(extra)])


def _command(words: list[str]) -> str:
    """Return the words as a line for the system's shell. That of Windows has no single quotes."""
    return subprocess.list2cmdline(words) if sys.platform == "win32" else shlex.join(words)


def _bracketed(extra: str) -> str:
    return f"[{extra}]" if extra else ""
