"""The hub's list of a repository's files: how long it may be, and the work that it makes for us."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hub_server import COMMIT, Hub, running

from samebits.core.errors import BadInput
from samebits.loaders import hub_files
from samebits.loaders.download import FetchFailed
from samebits.loaders.gguf_parts import part_names
from samebits.loaders.hub_files import MAX_FILES, beside, gguf_files
from samebits.loaders.hub_names import HubName
from samebits.loaders.pull import pull

NAME = HubName("one", "model")


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with running() as hub:
        hub.files["one/model-GGUF"] = {}
        monkeypatch.setenv("HF_ENDPOINT", hub.address)
        monkeypatch.setenv("SAMEBITS_CACHE", str(tmp_path / "cache"))
        monkeypatch.delenv("HF_TOKEN", raising=False)
        yield hub


@pytest.mark.parametrize("num_files", [MAX_FILES + 1, 400_000])
def test_a_longer_list_is_refused_in_a_line(hub: Hub, num_files: int) -> None:
    hub.answer = json.dumps({"sha": COMMIT, "siblings": [{}] * num_files}).encode()
    with pytest.raises(FetchFailed) as caught:
        pull("hf:one/model-GGUF", lambda *_: None)
    assert str(caught.value) == f"hf:one/model-GGUF: a repository of {num_files} files; needs at most {MAX_FILES}"


def split(number: int, num_parts: int) -> list[str]:
    return part_names(f"m{number}-00001-of-{num_parts:05d}.gguf")


@pytest.mark.parametrize("has_all", [True, False])
def test_the_work_grows_with_the_number_of_files(has_all: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names of parts are made for whole models alone: each file of an incomplete one could stand for 512."""
    made = 0

    def counted(name: str) -> list[str]:
        nonlocal made
        names = part_names(name)
        made += len(names)
        return names

    monkeypatch.setattr(hub_files, "part_names", counted)
    for num_models in (2, 8):
        files = [part for i in range(num_models) for part in split(i, 512)[: 512 if has_all else 1]]
        made = 0
        with pytest.raises(BadInput):
            gguf_files(NAME, files)
        assert made <= len(files)


def test_a_path_is_left_out_if_no_file_can_have_it(hub: Hub) -> None:
    """The type is looked for in a file's name, in time that grows with the square of its length."""
    names = ["a" * 250 + ".gguf", "a" * 251 + ".gguf", "a" * 256 + "/b.gguf", "/".join(["a" * 255] * 16) + "/b.gguf"]
    siblings = [{"rfilename": name, "size": 1} for name in (*names, "x" + "_Q1" * 30_000 + "+.gguf")]
    hub.answer = json.dumps({"sha": COMMIT, "siblings": siblings}).encode()
    assert list(hub_files.listing(HubName("one", "model-GGUF"))[1]) == names[:1]


def models_by_their_names(files: set[str]) -> dict[str, list[str]]:
    """The definition, file by file."""
    found = {}
    for path in files:
        try:
            parts = part_names(path)
        except BadInput:
            continue
        if path == parts[0] and files.issuperset(parts):
            found[path] = parts
    return found


def test_all_chat_templates_are_read_beside_the_weights() -> None:
    own = [f"additional_chat_templates/{name}.jinja" for name in ("rag", "tool_use")]
    files = {"config.json", "chat_template.jinja", "tokenizer.json", *own, "additional_chat_templates/x/y.jinja"}
    assert set(beside(files)) == files - {"additional_chat_templates/x/y.jinja"}


def test_models_are_found_as_their_parts_names_define_them() -> None:
    drawn = random.Random(5)
    names = [name for i in range(3) for n in (1, 2, 3) for name in split(i, n)]
    names += ["a.gguf", "b.GGUF", "m0-00000-of-00002.gguf", "m0-00003-of-00002.gguf", "m0-00001-of-00000.gguf"]
    names += ["m1-00001-of-00513.gguf", "d/m0-00001-of-00002.gguf", "d/m0-00002-of-00002.gguf", "c-0001-of-0002.gguf"]
    for _ in range(300):
        files = set(drawn.sample(names, drawn.randint(1, len(names))))
        assert hub_files._gguf_models(files) == models_by_their_names(files)
