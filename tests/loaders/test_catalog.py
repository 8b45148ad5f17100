"""The table of short names keeps what it promises, and a folder of one GGUF file is that file."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from gguf_writer import tiny_model
from hub_server import running
from hypothesis import given
from hypothesis import strategies as st
from test_inspect_and_pull_commands import cli  # noqa: F401  (a fixture)

from samebits.core.errors import BadInput
from samebits.loaders.cache import cached_path, repository_of
from samebits.loaders.catalog import DEFAULT_MODEL, MODELS, HubModel, PackagedModel
from samebits.loaders.files import open_file
from samebits.loaders.hub_files import kind_of
from samebits.loaders.hub_names import hub_name
from samebits.loaders.manifest import is_inside
from samebits.models import ARCHITECTURES
from samebits.models.checkpoint import open_checkpoint

HUB_MODELS = {name: model for name, model in MODELS.items() if isinstance(model, HubModel)}


def test_names_are_unlike_addresses_and_paths() -> None:
    assert DEFAULT_MODEL in MODELS
    assert all(re.fullmatch(r"[a-z][a-z0-9.-]*", name) and not name.endswith(".gguf") for name in MODELS)
    assert len({name.replace("-", "").replace(".", "") for name in MODELS}) == len(MODELS)


@pytest.mark.parametrize("name", HUB_MODELS)
def test_addresses_are_whole_and_of_models_that_we_load(name: str) -> None:
    model = HUB_MODELS[name]
    found = hub_name(model.address)
    assert found is not None
    assert found.text == model.address
    assert found.kind is not None
    assert kind_of(f"x-{found.kind}.gguf") == found.kind
    assert found == repository_of(name)
    assert model.architecture in ARCHITECTURES


def test_no_two_names_mean_one_model() -> None:
    assert len({model.address for model in HUB_MODELS.values()}) == len(HUB_MODELS)
    assert len({cached_path(name) for name in MODELS}) == len(MODELS)


def test_packages_are_stated_in_full() -> None:
    for model in MODELS.values():
        if isinstance(model, PackagedModel):
            assert re.fullmatch(r"[\w.-]+==[\w.]+", model.requirement)
            assert re.fullmatch(r"[0-9a-f]{64}", model.sha256)
            assert model.member.endswith(model.file_name)


@given(st.text(max_size=40) | st.from_regex(r"(hf:)?[\w./:@-]{1,40}"))
def test_whatever_a_text_says_its_folder_is_one_in_the_cache(text: str) -> None:
    try:
        found = hub_name(text)
    except BadInput:
        return
    if found is not None:
        assert re.fullmatch(r"[\w.-]+", found.folder, re.ASCII)
        assert hub_name(found.text) == found


@given(st.text(max_size=40) | st.from_regex(r"[\w./\\-]{1,40}"))
def test_a_path_inside_stays_inside(path: str) -> None:
    if is_inside(path):
        assert Path("/cache/x") in Path(f"/cache/x/{path}").resolve().parents


@pytest.mark.parametrize(
    ("file", "kind"),
    [
        ("a/qwen2.5-0.5b-instruct-q4_k_m.gguf", "q4_k_m"),
        ("Model.IQ4_XS.gguf", "IQ4_XS"),
        ("m-UD-Q2_K_XL-00001-of-00003.gguf", "UD-Q2_K_XL"),
        ("m-BF16.gguf", "BF16"),
        ("gpt-oss-20b-mxfp4.gguf", "mxfp4"),
        ("ggml-model.gguf", ""),
    ],
)
def test_types_in_names_of_files(file: str, kind: str) -> None:
    assert kind_of(file) == kind


def test_a_folder_of_one_gguf_file_is_that_file(tmp_path: Path) -> None:
    tiny_model().write(tmp_path / "m.gguf")
    (tmp_path / "README.md").write_text("#")
    assert open_checkpoint(tmp_path).file.path == tmp_path / "m.gguf"
    tiny_model().write(tmp_path / "n.gguf")
    with pytest.raises(BadInput, match=r"folder is 2 GGUF models, but must be one of them: m.gguf, n.gguf"):
        open_file(tmp_path)


def test_pull_list_and_remove_on_the_command_line(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    assert cli("list")[1].startswith("nothing in ")
    with running() as hub:
        hub.files["Qwen/Qwen3-0.6B-GGUF"] = {"Qwen3-0.6B-Q8_0.gguf": tiny_model().build()}
        monkeypatch.setenv("HF_ENDPOINT", hub.address)
        _, out, _ = cli("pull", "qwen3-0.6b", "--json")
    path = json.loads(out)["path"]
    assert Path(path).name == "Qwen3-0.6B-Q8_0.gguf"
    _, out, _ = cli("list", "--json")
    (found,) = json.loads(out)
    assert (found["name"], found["path"], found["format"], found["used"]) == ("qwen3-0.6b", path, "f32", None)
    status, _, _ = cli("inspect", "qwen3-0.6b")
    assert status == 0
    assert json.loads(cli("list", "--json")[1])[0]["used"] is not None
    assert "qwen3-0.6b" in cli("list")[1]
    assert cli("remove", "qwen3-0.6b")[1].startswith("removed qwen3-0.6b, ")
    assert json.loads(cli("list", "--json")[1]) == []
    status, _, err = cli("remove", "qwen3-0.6b")
    assert (status, err.count("\n")) == (2, 1)
    assert list(json.loads(cli("list", "--names", "--json")[1])) == list(MODELS)
