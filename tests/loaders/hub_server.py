"""A server on this machine that answers as the Hugging Face hub does: lists, small files, large ones by redirect.

Large files redirect to a second server, as the hub's do to its storage, which no token may reach.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

LARGE_BYTES = 4096  # files from this size on are stored as large ones
COMMIT = "c0ffee" + "0" * 34


@dataclass
class Hub:
    """What there is, what was asked, and how the server misbehaves.

    files         of each repository, by owner/repo
    token         that a request to the hub must carry; None lets everyone in
    break_after   a large file's connection is closed after so many bytes, once
    flips         a byte of these large files is wrong on the way
    sizes         that the list states of files in place of their own
    answer        what the list is in place of one
    seen          (server, path, Authorization, Range) of all requests
    """

    files: dict[str, dict[str, bytes]] = field(default_factory=dict)
    commit: str = COMMIT
    token: str | None = None
    break_after: int | None = None
    flips: set[str] = field(default_factory=set)
    sizes: dict[str, int] = field(default_factory=dict)
    answer: bytes | None = None
    moved: dict[str, str] = field(default_factory=dict)
    seen: list[tuple[str, str, str | None, str | None]] = field(default_factory=list)
    address: str = ""
    storage: str = ""

    def paths(self, server: str) -> list[str]:
        return [path for where, path, *_ in self.seen if where == server]


def listed(name: str, data: bytes) -> dict[str, Any]:
    """A file as the hub's list has it."""
    entry: dict[str, Any] = {"rfilename": name, "size": len(data)}
    if len(data) < LARGE_BYTES:
        return {**entry, "blobId": hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()}
    lfs = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 134}
    return {**entry, "blobId": "0" * 40, "lfs": lfs}


def _handler(hub: Hub, server: str) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            hub.seen.append((server, self.path, self.headers.get("Authorization"), self.headers.get("Range")))
            path = unquote(urlsplit(self.path).path)
            if server == "storage":
                self._send(self._stored(path), path)
            elif hub.token and self.headers.get("Authorization") != f"Bearer {hub.token}":
                self._refuse(401, "GatedRepo")
            elif found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/revision/(.+)", path):
                self._list(found[1], found[2])
            elif found := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
                self._file(found[1], found[2], found[3])
            else:
                self._refuse(404, "RepoNotFound")

        def _list(self, repo: str, revision: str) -> None:
            if repo in hub.moved:
                self._redirect(307, self.path.replace(repo, hub.moved[repo], 1))
            elif repo not in hub.files:
                self._refuse(401, "RepoNotFound")
            elif revision not in ("main", "v1", "refs/pr/1", hub.commit):
                self._refuse(404, "RevisionNotFound")
            else:
                siblings = [listed(name, data) for name, data in hub.files[repo].items()]
                for entry in siblings:
                    if size := hub.sizes.get(entry["rfilename"]):
                        entry["size"] = entry["lfs"]["size"] = size
                answer = {"_id": "1", "id": repo, "modelId": repo, "sha": hub.commit, "siblings": siblings, "tags": []}
                self._send(json.dumps(answer).encode() if hub.answer is None else hub.answer, "")

        def _file(self, repo: str, revision: str, name: str) -> None:
            data = hub.files.get(repo, {}).get(name)
            if data is None or revision not in (hub.commit, "main"):
                self._refuse(404, "EntryNotFound")
            elif len(data) < LARGE_BYTES:
                self._send(data, name)
            else:
                self._redirect(302, f"{hub.storage}/{repo}/{name}?Signature=secret", data)

        def _stored(self, path: str) -> bytes:
            owner, repo, name = path.removeprefix("/").split("/", 2)
            data = hub.files[f"{owner}/{repo}"][name]
            return data[:-1] + bytes([data[-1] ^ 1]) if name in hub.flips else data

        def _send(self, data: bytes, name: str) -> None:
            tag = f'"{hashlib.sha1(data).hexdigest()}"'
            asked, if_range = self.headers.get("Range"), self.headers.get("If-Range")
            goes_on = asked is not None and if_range in (None, tag)
            start = int(asked[6:].split("-")[0]) if goes_on and asked else 0
            self.send_response(206 if goes_on else 200)
            if goes_on:
                self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
            self.send_header("Content-Length", str(len(data) - start))
            self.send_header("ETag", tag)
            self.send_header("X-Repo-Commit", hub.commit)
            self.end_headers()
            end = len(data)
            if server == "storage" and hub.break_after is not None and self.command == "GET":
                end, hub.break_after = hub.break_after, None
            if self.command == "GET":
                self.wfile.write(data[start:end])

        def _redirect(self, code: int, to: str, data: bytes = b"") -> None:
            self.send_response(code)
            self.send_header("Location", to)
            if data:
                self.send_header("X-Linked-Size", str(len(data)))
                self.send_header("X-Linked-ETag", f'"{hashlib.sha256(data).hexdigest()}"')
            self.send_header("X-Repo-Commit", hub.commit)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def _refuse(self, code: int, why: str) -> None:
            self.send_response(code)
            self.send_header("X-Error-Code", why)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Nothing on the terminal."""

    return Handler


@contextmanager
def running() -> Iterator[Hub]:
    """The hub and its storage, on two ports of this machine."""
    hub = Hub()
    servers = [ThreadingHTTPServer(("127.0.0.1", 0), _handler(hub, name)) for name in ("hub", "storage")]
    threads = [threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True) for server in servers]
    for thread in threads:
        thread.start()
    hub.address, hub.storage = (f"http://127.0.0.1:{server.server_address[1]}" for server in servers)
    try:
        yield hub
    finally:
        for server, thread in zip(servers, threads, strict=True):
            server.shutdown()
            thread.join()
            server.server_close()
