"""What a text says of a model of the Hugging Face hub, and where the hub is."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

from samebits.core.errors import BadInput

USUAL_ENDPOINT = "https://huggingface.co"
USUAL_REVISION = "main"
NEEDED = "hf:owner/repo, hf:owner/repo:Q4_K_M or hf:owner/repo/file, with @revision behind it or without"
_WORD = r"[A-Za-z0-9_][\w.-]*"
_NAME = re.compile(
    rf"^(?P<owner>{_WORD})/(?P<repo>{_WORD})"
    rf"(?:/(?P<file>{_WORD}(?:/{_WORD})*)|:(?P<kind>{_WORD}))?"
    rf"(?:@(?P<revision>{_WORD}(?:/{_WORD})*))?$",
    re.ASCII,
)
MAX_NAME_CHARS = 400
FILE_ENDINGS = (".gguf", ".safetensors", ".json", ".bin", ".pt", ".pth")


@dataclass(frozen=True)
class HubName:
    """A model of the hub: its repository, and which file or which type of its GGUF files is meant."""

    owner: str
    repo: str
    file: str | None = None
    kind: str | None = None
    revision: str = USUAL_REVISION

    @property
    def text(self) -> str:
        """The name in full, as a user writes it."""
        part = f"/{self.file}" if self.file else f":{self.kind}" if self.kind else ""
        return f"hf:{self.owner}/{self.repo}{part}" + (f"@{self.revision}" if self.revision != USUAL_REVISION else "")

    @property
    def folder(self) -> str:
        """The name of its folder in the cache: readable, and another one for every hub, revision and type."""
        whole = f"{endpoint()} {self.owner}/{self.repo} {(self.kind or '').lower()} {self.revision}"
        shown = "--".join((self.owner, self.repo, *([self.kind.lower()] if self.kind else [])))
        return f"{shown[:100]}-{hashlib.sha256(whole.encode()).hexdigest()[:12]}"

    def file_address(self, file: str, revision: str | None = None) -> str:
        """Where a file of the repository is, at the name's revision or another."""
        at = quote(revision or self.revision, safe="")
        return f"{endpoint()}/{self.owner}/{self.repo}/resolve/{at}/{quote(file)}"

    def listing_address(self) -> str:
        """Where the hub says which files there are."""
        at = quote(self.revision, safe="")
        return f"{endpoint()}/api/models/{self.owner}/{self.repo}/revision/{at}?blobs=true"


def hub_name(text: str) -> HubName | None:
    """The hub's model that a text means: hf:..., or owner/repo. None for other texts; BadInput for a wrong hf:..."""
    is_stated = text.startswith("hf:")
    found = _NAME.match(text.removeprefix("hf:")) if len(text) <= MAX_NAME_CHARS else None
    if found is None or ".." in text:
        if is_stated:
            raise BadInput("model", "address", repr(text[:120]), NEEDED)
        return None
    if not is_stated and (found["file"] or text.endswith(FILE_ENDINGS)):
        return None  # a path
    return HubName(found["owner"], found["repo"], found["file"], found["kind"], found["revision"] or USUAL_REVISION)


def endpoint() -> str:
    """$HF_ENDPOINT without a slash at its end, else Hugging Face's own; BadInput unless https, or this machine's."""
    stated = os.environ.get("HF_ENDPOINT", "").rstrip("/") or USUAL_ENDPOINT
    try:
        parts = urlsplit(stated)
        is_whole = bool(parts.hostname) and not parts.query and not parts.fragment and parts.username is None
    except ValueError:
        is_whole = False
    if not is_whole or not (stated.startswith("https://") or is_here(stated)) or any(c.isspace() for c in stated):
        raise BadInput("model", "HF_ENDPOINT", repr(stated[:120]), "an https address, or http on this machine")
    return stated


def is_here(address: str) -> bool:
    """Whether it is an http address of this machine, which no one listens to on the way."""
    if not address.startswith("http://"):
        return False
    import ipaddress  # few addresses need it, and every start would wait for it

    try:
        host = urlsplit(address).hostname or ""
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def hub_headers(address: str) -> dict[str, str]:
    """What a request to `address` says of its user: HF_TOKEN where it goes to the hub itself, nothing elsewhere.

    BadInput, which never shows the token, for one that no header can hold.
    """
    token = os.environ.get("HF_TOKEN", "").strip()
    if not token or _origin(address) != _origin(endpoint()):
        return {}
    if not (token.isascii() and token.isprintable()) or " " in token:
        raise BadInput("model", "HF_TOKEN", "a token with blanks or odd characters", "the token alone")
    return {"Authorization": f"Bearer {token}"}


def _origin(address: str) -> tuple[str, str | None, int | None]:
    try:
        parts = urlsplit(address)
        usual = {"https": 443, "http": 80}.get(parts.scheme)
        return parts.scheme, parts.hostname, parts.port or usual
    except ValueError:
        return "", None, None
