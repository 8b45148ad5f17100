"""Where fetched models live, and which file a name, path or address means."""

from __future__ import annotations

import hashlib
import os
import re
import sys
from pathlib import Path
from urllib.parse import urlsplit

from samebits.core.errors import BadInput, NotFound
from samebits.loaders.catalog import MODELS, long_name, package_of
from samebits.loaders.gguf_parts import part_names
from samebits.loaders.hub_names import HubName, endpoint, hub_name, is_here
from samebits.loaders.manifest import read_manifest

ALLOWED_SCHEMES = frozenset(("https",))
MODEL_ENDINGS = (".gguf", ".safetensors")


def cache_dir() -> Path:
    """$SAMEBITS_CACHE, else samebits/models in the user's cache folder. Not created."""
    if stated := os.environ.get("SAMEBITS_CACHE"):
        return Path(stated).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "samebits" / "models"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "samebits" / "models"


def repository_of(model: str) -> HubName | None:
    """The model of the hub that `model` means, of several files or of one by its type; None for everything else.

    owner/repo means one of the hub unless there is such a path here.
    """
    if model in MODELS and package_of(model) is not None:
        return None
    found = hub_name(long_name(model))
    if found is None or found.file is not None:
        return None
    return None if not long_name(model).startswith("hf:") and Path(model).exists() else found


def address_of(model: str) -> str | None:
    """The address of the one file that `model` means: an https address, or hf:owner/repo/file. None elsewhere."""
    if model.startswith("hf:"):
        name = hub_name(model)
        return name.file_address(name.file) if name is not None and name.file else None
    if "://" not in model:
        return None
    check_address(model)
    return model


def check_address(address: str) -> None:
    """BadInput unless it is an https address with a host, or an http one of this machine where the hub is here too."""
    try:
        parts = urlsplit(address)
        host = parts.hostname
    except ValueError as error:
        raise BadInput("model", "address", repr(address[:120]), f"an https address: {error}") from None
    is_allowed = parts.scheme in ALLOWED_SCHEMES or (is_here(address) and is_here(endpoint()))
    if not is_allowed or not host or any(c.isspace() for c in address):
        raise BadInput("model", "address", repr(address[:120]), "an https address")


def cached_path(model: str) -> Path | None:
    """Where the file of a name or an address is, or would be, in the cache; None for a path.

    Of a model of several files, their folder.
    """
    if (package := package_of(model)) is not None:
        return cache_dir() / package.file_name
    if (repository := repository_of(model)) is not None:
        return cache_dir() / repository.folder
    address = address_of(model)
    if address is None:
        return None
    first = part_names(address)[0]  # names the model: its parts lie side by side
    name = re.sub(r"[^\w.-]", "_", urlsplit(address).path.rsplit("/", 1)[-1], flags=re.ASCII)[-120:].lstrip(".")
    return cache_dir() / f"{hashlib.sha256(first.encode()).hexdigest()[:12]}-{name or 'model'}"


def pulled_path(cached: Path) -> Path | None:
    """What a loader opens of a file or folder of the cache; None if it is not there, or not all of it."""
    if cached.is_file():
        return cached
    manifest = read_manifest(cached)
    return manifest.path(cached) if manifest is not None and manifest.is_whole(cached) else None


def resolve(model: str | Path) -> Path:
    """The local file or folder of a model, never fetching: a path that exists, or a name or address in the cache."""
    text = str(model)
    try:
        cached = cached_path(text) if isinstance(model, str) else None
        if cached is not None and (pulled := pulled_path(cached)) is not None:
            return pulled
        path = Path(text).expanduser()
        if path.exists():
            return path
    except (OSError, ValueError, RuntimeError) as error:
        if isinstance(error, BadInput):
            raise
        raise BadInput("model", "path", repr(text[:120]), f"a path of this system: {error}") from None
    if cached is not None:
        raise BadInput("model", text[:200], "nothing in the cache", f"`samebits pull {text[:200]}` once")
    raise NotFound("model", "path or name", _not_found(text[:200]))


def _not_found(text: str) -> str:
    """Return what is wrong with a text that names no model, with a similar short name if there is one."""
    if any(mark in text for mark in ("/", "\\")) or Path(text).suffix in MODEL_ENDINGS:
        return f"no such file or folder: {text!r}" if not text.isprintable() else f"no such file or folder: {text}"
    from difflib import get_close_matches  # no model that is found needs it

    near = get_close_matches(text.lower().replace(":", "-"), MODELS, n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    return f"no model {text!r}; {hint}`samebits list --names` shows the short names"
