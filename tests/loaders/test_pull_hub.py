"""Models of the hub: which files a name means, one commit, checksums, tokens, interruptions; against a real server."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from gguf_writer import STRING, U32, tiny_model
from hub_server import COMMIT, Hub, running

from samebits import LLM
from samebits.core.errors import BadInput
from samebits.loaders.cache import cache_dir, resolve
from samebits.loaders.download import FetchFailed
from samebits.loaders.integrity import Damaged
from samebits.loaders.obtain import cached_models, obtain, remove
from samebits.loaders.pull import pull
from samebits.models.checkpoint import open_checkpoint

GGUF = tiny_model().build()
LLAMA = Path(__file__).parents[1] / "models" / "data" / "llama"
TOKEN = "hf_secretOfTheUser"


def quiet(step: str, num_bytes: int, total: int | None) -> None:
    """A progress that shows nothing."""


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with running() as hub:
        hub.files["one/model-GGUF"] = {"README.md": b"# model", "model-Q4_0.gguf": GGUF}
        kinds = {f"m.{kind}.gguf": GGUF for kind in ("Q4_K_M", "q8_0", "bf16")}
        hub.files["many/model-GGUF"] = {**kinds, "mmproj-m-Q4_K_M.gguf": GGUF, "IQ2/m-IQ2_M-00001-of-00002.gguf": GGUF}
        names = ("config.json", "model.safetensors")
        folder = {name: (LLAMA / name).read_bytes() for name in names}
        hub.files["a/folder"] = {**folder, "README.md": b"", "pytorch_model.bin": bytes(9999), "x.gguf": GGUF}
        monkeypatch.setenv("HF_ENDPOINT", hub.address)
        monkeypatch.setenv("SAMEBITS_CACHE", str(tmp_path / "cache"))
        monkeypatch.delenv("HF_TOKEN", raising=False)
        yield hub


def split_model() -> dict[str, bytes]:
    """A model in two parts, the second of which holds one tensor."""
    whole, parts = tiny_model(), {}
    for number, tensors in enumerate((whole.tensors[:-1], whole.tensors[-1:])):
        file = tiny_model(**{"split.count": (U32, 2), "split.no": (U32, number), "general.name": (STRING, "x")})
        file.tensors = tensors
        parts[f"Q4_0/m-Q4_0-0000{number + 1}-of-00002.gguf"] = file.build()
    return parts


def test_the_real_client_reads_our_server_as_the_hub(hub: Hub, tmp_path: Path) -> None:
    """So that what the other tests prove against it means something."""
    code = """
import sys
from huggingface_hub import HfApi, hf_hub_download
info = HfApi().model_info("one/model-GGUF", revision="main", files_metadata=True)
print(info.sha, [(s.rfilename, s.size, s.lfs and s.lfs.sha256[:4]) for s in info.siblings][1])
print(len(open(hf_hub_download("one/model-GGUF", "model-Q4_0.gguf", cache_dir=sys.argv[1]), "rb").read()))
"""
    env = {"HF_ENDPOINT": hub.address, "HF_HUB_DISABLE_XET": "1", "PATH": "", "HOME": str(tmp_path)}
    call = [sys.executable, "-c", code, str(tmp_path / "hf")]
    done = subprocess.run(call, capture_output=True, text=True, env=env, timeout=60)
    lines = done.stdout.splitlines()
    assert lines[0].startswith(f"{COMMIT} ('model-Q4_0.gguf', {len(GGUF)}, '"), done.stderr
    assert lines[1] == str(len(GGUF))


@pytest.mark.parametrize(
    "name", ["hf:one/model-GGUF", "one/model-GGUF", "hf:one/model-GGUF:q4_0", "one/model-GGUF:Q4_0"]
)
def test_a_repository_of_one_gguf_file(hub: Hub, name: str) -> None:
    path = pull(name, quiet)
    assert (path.name, path.read_bytes()) == ("model-Q4_0.gguf", GGUF)
    before = len(hub.seen)
    assert path == pull(name, quiet) == resolve(name) == obtain(name)
    assert len(hub.seen) == before  # nothing is asked again
    assert hub.paths("hub")[-1] == f"/one/model-GGUF/resolve/{COMMIT}/model-Q4_0.gguf"
    open_checkpoint(path)


def test_a_type_picks_a_file_and_others_are_listed(hub: Hub) -> None:
    assert pull("hf:many/model-GGUF:q4_k_m", quiet).name == "m.Q4_K_M.gguf"
    assert pull("hf:many/model-GGUF:BF16", quiet).name == "m.bf16.gguf"
    assert pull("hf:many/model-GGUF:Bf16", quiet) == pull("hf:many/model-GGUF:BF16", quiet)
    with pytest.raises(
        BadInput, match=r"3 GGUF models, but must be one of bf16, Q4_K_M, q8_0, as in hf:many/model-GGUF:bf16"
    ):
        pull("hf:many/model-GGUF", quiet)
    with pytest.raises(BadInput, match=r"type is no Q5_0 among bf16, Q4_K_M, q8_0"):
        pull("hf:many/model-GGUF:Q5_0", quiet)
    hub.files["many/model-GGUF"]["other-Q8_0.gguf"] = GGUF
    with pytest.raises(
        BadInput, match=r"q8_0 for several files: m.q8_0.gguf, other-Q8_0.gguf, but must be one of them"
    ):
        pull("hf:many/model-GGUF:q8_0", quiet)
    assert pull("hf:many/model-GGUF/other-Q8_0.gguf", quiet).read_bytes() == GGUF


def test_a_model_in_parts(hub: Hub) -> None:
    hub.files["a/parts"] = split_model()
    path = pull("hf:a/parts:Q4_0", quiet)
    assert path.name == "m-Q4_0-00001-of-00002.gguf"
    assert len(open_checkpoint(path).file.tensors) == len(tiny_model().tensors)


def test_a_folder_of_safetensors(hub: Hub) -> None:
    path = pull("a/folder", quiet)
    assert path.is_dir()
    assert sorted(p.name for p in path.iterdir() if not p.name.endswith(".checked.json")) == [
        "config.json",
        "model.safetensors",
        "pulled.json",
    ]
    assert open_checkpoint(path).architecture.name == "llama"
    assert open_checkpoint(obtain("a/folder")).architecture.name == "llama"


def test_a_tokenizer_that_we_do_not_read_is_not_taken_for_none(hub: Hub) -> None:
    hub.files["a/folder"]["tokenizer.model"] = b"sentencepiece"
    with pytest.raises(BadInput, match=r"tokenizer\.json"):
        open_checkpoint(pull("a/folder", quiet)).tokenizer()


def test_shards_are_those_of_the_index(hub: Hub) -> None:
    from safetensors.numpy import load_file, save

    tensors = load_file(LLAMA / "model.safetensors")
    names = sorted(tensors)
    shards = {"s1.safetensors": names[:5], "s2.safetensors": names[5:]}
    index = {"weight_map": {name: shard for shard, of in shards.items() for name in of}}
    files = {shard: save({name: tensors[name] for name in of}) for shard, of in shards.items()}
    files |= {"config.json": (LLAMA / "config.json").read_bytes(), "s3.safetensors": bytes(5000)}
    hub.files["a/shards"] = {**files, "model.safetensors.index.json": json.dumps(index).encode()}
    path = pull("hf:a/shards", quiet)
    assert len(open_checkpoint(path).file.tensors) == len(tensors)
    assert not (path / "s3.safetensors").exists()
    del hub.files["a/shards"]["s2.safetensors"]
    with pytest.raises(BadInput, match=r"the shard 's2.safetensors', but must be shards that the repository has"):
        pull("hf:a/shards@v1", quiet)
    index["weight_map"][names[0]] = "../../evil.safetensors"
    hub.files["a/shards"]["model.safetensors.index.json"] = json.dumps(index).encode()
    with pytest.raises(BadInput, match="a file inside the folder"):
        pull("hf:a/shards@refs/pr/1", quiet)


def test_of_one_file_and_shards_the_one_file_is_fetched(hub: Hub) -> None:
    """As transformers does it, which is not run here: it reads the index only where there is no model.safetensors."""
    index = {"weight_map": {"lm_head.weight": "s1.safetensors"}}
    more = {"model.safetensors.index.json": json.dumps(index).encode(), "s1.safetensors": bytes(5000)}
    hub.files["a/both"] = {**hub.files["a/folder"], **more}
    path = pull("hf:a/both", quiet)
    assert open_checkpoint(path).architecture.name == "llama"
    assert {p.name for p in path.iterdir()}.isdisjoint(more)


def test_revisions(hub: Hub) -> None:
    assert pull("hf:one/model-GGUF@v1", quiet) != pull("hf:one/model-GGUF", quiet)
    assert pull("one/model-GGUF:Q4_0@refs/pr/1", quiet).read_bytes() == GGUF
    assert "/api/models/one/model-GGUF/revision/refs%2Fpr%2F1?blobs=true" in hub.paths("hub")
    with pytest.raises(FetchFailed, match=r"404.*needs a revision that is there"):
        pull("hf:one/model-GGUF@nope", quiet)
    with pytest.raises(FetchFailed, match="needs the name of a model that is there"):
        pull("hf:no/body", quiet)


def test_a_renamed_repository_is_followed_with_the_token(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.token = TOKEN
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    hub.moved["old/name"] = "one/model-GGUF"
    hub.files["old/name"] = hub.files["one/model-GGUF"]
    assert pull("hf:old/name", quiet).read_bytes() == GGUF


def test_the_token_goes_to_the_hub_alone_and_is_never_shown(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.token = TOKEN
    with pytest.raises(FetchFailed, match=r"401.*HF_TOKEN where it asks for one"):
        pull("hf:one/model-GGUF", quiet)
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    with pytest.raises(FetchFailed) as caught:
        pull("hf:one/model-GGUF", quiet)
    assert "hf_wrong" not in str(caught.value)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    hub.seen.clear()
    pull("hf:one/model-GGUF", quiet)
    pull("hf:one/model-GGUF/model-Q4_0.gguf", quiet)
    told = {
        server: {authorization for where, _, authorization, _ in hub.seen if where == server}
        for server in ("hub", "storage")
    }
    assert told == {"hub": {f"Bearer {TOKEN}"}, "storage": {None}}
    assert not any(TOKEN.encode() in p.read_bytes() for p in cache_dir().rglob("*") if p.is_file())
    monkeypatch.setenv("HF_TOKEN", "two words")
    with pytest.raises(BadInput, match="must have the token alone") as odd:
        pull("hf:one/model-GGUF@v1", quiet)
    assert "two words" not in str(odd.value)


def test_another_hub_gets_no_token_of_ours_by_its_name(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    pull(f"{hub.storage}/one/model-GGUF/model-Q4_0.gguf", quiet)
    assert [seen[2] for seen in hub.seen] == [None]


@pytest.mark.parametrize("endpoint", ["http://example.com", "ftp://x", "https://", "https://a b", "https://u:p@h", "x"])
def test_endpoints_that_are_refused(hub: Hub, monkeypatch: pytest.MonkeyPatch, endpoint: str) -> None:
    monkeypatch.setenv("HF_ENDPOINT", endpoint)
    with pytest.raises(BadInput, match=r"HF_ENDPOINT is .*, but must be an https address, or http on this machine"):
        pull("hf:one/model-GGUF", quiet)


def test_an_interrupted_transfer_goes_on(hub: Hub) -> None:
    hub.break_after = 10_000
    with pytest.raises(FetchFailed, match="run the same command to go on"):
        pull("hf:one/model-GGUF", quiet)
    with pytest.raises(BadInput, match="nothing in the cache"):
        resolve("hf:one/model-GGUF")
    assert cached_models() == []
    assert pull("hf:one/model-GGUF", quiet).read_bytes() == GGUF
    assert [seen[3] for seen in hub.seen if seen[0] == "storage"] == [None, "bytes=10000-"]


def test_files_of_another_commit_do_not_mix(hub: Hub) -> None:
    hub.files["a/parts"] = split_model()
    first, second = sorted(hub.files["a/parts"])
    hub.flips = {second}
    with pytest.raises(FetchFailed, match=r"has the checksum .*; needs "):
        pull("hf:a/parts", quiet)
    hub.flips, hub.commit = set(), "beef" * 10
    old = hub.files["a/parts"][first]
    hub.files["a/parts"][first] = old[:-4] + bytes(4)
    path = pull("hf:a/parts", quiet)
    assert path.read_bytes() == old[:-4] + bytes(4)
    assert json.loads((path.parents[1] / "pulled.json").read_text())["commit"] == "beef" * 10


@pytest.mark.parametrize("name", ["model-Q4_0.gguf", "config.json"])
def test_a_wrong_checksum_leaves_nothing_to_open(hub: Hub, name: str) -> None:
    if name == "config.json":  # a small file: git's checksum
        data = hub.files["a/folder"].pop(name)

        class Lying(dict):  # type: ignore[type-arg]
            def get(self, key: str, default: bytes | None = None) -> bytes | None:
                return b"[" + data[1:] if key == name else super().get(key, default)

        hub.files["a/folder"] = Lying({name: data, **hub.files["a/folder"]})
    hub.flips = {name}
    model = "hf:a/folder" if name == "config.json" else "hf:one/model-GGUF"
    with pytest.raises(FetchFailed, match=r"has the checksum [0-9a-f]+; needs [0-9a-f]+"):
        pull(model, quiet)
    assert cached_models() == []
    assert not list(cache_dir().rglob(name + "*"))


def test_a_damaged_file_is_found_and_fetched_again(hub: Hub) -> None:
    path = pull("hf:one/model-GGUF", quiet)
    path.write_bytes(GGUF[:-1] + b"?")
    with pytest.raises(Damaged):
        open_checkpoint(path)
    assert pull("hf:one/model-GGUF", quiet).read_bytes() == GGUF
    folder = pull("a/folder", quiet)
    weights = folder / "model.safetensors"
    data = weights.read_bytes()
    weights.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(Damaged, match="`samebits pull` fetches it anew"):
        open_checkpoint(folder)
    open_checkpoint(obtain("a/folder", quiet))
    path.unlink()
    with pytest.raises(BadInput, match="nothing in the cache"):
        resolve("hf:one/model-GGUF")
    assert obtain("hf:one/model-GGUF", quiet).read_bytes() == GGUF


def test_room_is_asked_for_before_the_first_byte(hub: Hub) -> None:
    hub.sizes["model-Q4_0.gguf"] = 1 << 60
    with pytest.raises(FetchFailed, match=f"hf:one/model-GGUF: {1 << 60} bytes to fetch; there is room for [0-9]+ in"):
        pull("hf:one/model-GGUF", quiet)
    assert hub.paths("storage") == []


def test_pulls_at_once_fetch_once(hub: Hub) -> None:
    found: list[Path] = []
    threads = [threading.Thread(target=lambda: found.append(pull("hf:one/model-GGUF", quiet))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [path.read_bytes() for path in found] == [GGUF] * 4
    assert len(hub.paths("storage")) == 1


def test_progress_is_one_account_of_all_files(hub: Hub) -> None:
    hub.files["a/parts"] = split_model()
    total, told = sum(map(len, hub.files["a/parts"].values())), []
    pull("hf:a/parts", lambda step, done, of: told.append((step, done, of)))
    assert {(step, of) for step, _, of in told} == {("fetching", total)}
    assert [done for _, done, _ in told] == sorted(done for _, done, _ in told)
    assert told[-1][1] == total


ANSWERS = [b"[]", b"{}", b'{"sha": 5, "siblings": []}', b'{"siblings": [5]}', b"\xff", b"[" * 9999]


@pytest.mark.parametrize("answer", ANSWERS, ids=range(len(ANSWERS)))
def test_answers_that_are_none(hub: Hub, answer: bytes) -> None:
    hub.answer = answer
    with pytest.raises(FetchFailed, match="needs the hub's list of files") as caught:
        pull("hf:one/model-GGUF", quiet)
    assert "\n" not in str(caught.value)


def test_paths_that_would_leave_the_folder_are_not_among_the_files(hub: Hub) -> None:
    hub.files["e/vil"] = dict.fromkeys(("../x.gguf", "/etc/x.gguf", "a\\..\\x.gguf", "a/../../x.gguf", ".x.gguf"), GGUF)
    with pytest.raises(BadInput, match="none that we load"):
        pull("hf:e/vil", quiet)


def test_llm_fetches_by_name(hub: Hub) -> None:
    assert len(LLM("hf:one/model-GGUF", context_len=16).encode("hi")) >= 1
    assert [(m.name, m.format, m.used is not None) for m in cached_models()] == [("hf:one/model-GGUF", "f32", True)]


def test_a_path_here_comes_before_the_hub(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(LLAMA, tmp_path / "a" / "folder")
    assert obtain("a/folder") == Path("a/folder")
    assert hub.seen == []


def test_list_and_remove(hub: Hub) -> None:
    pull("hf:one/model-GGUF", quiet)
    pull("a/folder", quiet)
    pull("hf:many/model-GGUF/m.q8_0.gguf", quiet)
    names = [model.name for model in cached_models()]
    assert names[1:] == ["hf:a/folder", "hf:one/model-GGUF"]
    assert names[0].endswith("-m.q8_0.gguf")
    assert remove("hf:one/model-GGUF").num_bytes >= len(GGUF)
    assert remove("a/folder").name == "hf:a/folder"
    assert remove(names[0]).num_bytes == len(GGUF)
    assert cached_models() == []
    assert {p.suffix for p in cache_dir().iterdir()} == {".lock"}
    with pytest.raises(BadInput, match=r"no model '.*a/folder' in the cache, which holds nothing"):
        remove("a/folder")
    with pytest.raises(BadInput):
        remove(str(cache_dir()))
