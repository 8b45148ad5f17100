"""Whatever meta.json or a tensor file holds, reading it ends in a verdict or in one line."""

from __future__ import annotations

import json
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from golden_helpers import check, make, rewrite
from hypothesis import given, settings
from hypothesis import strategies as st

from samebits.verify.artifacts import SIDES
from samebits.verify.compare import compare_trees

CASES = (
    "append_paged_kv_cache/page-edge",
    "paged_attention/lse-masked",
    "softmax/sinks",
    "top_k/ties",
    "gemm/bias-q4_1",
)
EXAMPLES = 15

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.integers(-3, 70),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["../x", "f32", "q4_0", "HND", "k_cache", "x", "0" * 64]),
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
)


KEEPER = tempfile.TemporaryDirectory()  # goes with the process; tmp_path would be one for all examples


@cache
def made(case: str) -> tuple[Path, dict[str, bytes]]:
    """A folder in a tree of its own, and its files."""
    folder = make(Path(KEEPER.name) / case.replace("/", "."), *case.split("/"))
    return folder, {p.name: p.read_bytes() for p in folder.iterdir()}


def restored(case: str) -> tuple[Path, dict[str, Any]]:
    """The folder as it was made, and what its meta.json says."""
    folder, files = made(case)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder, json.loads(files["meta.json"])


def places(tree: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) of a JSON tree."""
    keys = tree.keys() if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else ()
    return [place for key in keys for place in [(tree, key), *places(tree[key])]]


def assert_ends_well(folder: Path) -> None:
    verdict = check(folder)
    assert verdict.status in ("pass", "fail", "broken")
    assert "\n" not in verdict.reason
    (found,) = compare_trees(folder.parents[1], folder.parents[1])
    assert found.status in ("same", "broken")


@pytest.mark.parametrize("case", CASES)
@settings(max_examples=EXAMPLES, deadline=None)
@given(data=st.data())
def test_any_change_of_meta(case: str, data: st.DataObject) -> None:
    folder, tree = restored(case)
    for _ in range(data.draw(st.integers(1, 3))):
        container, key = data.draw(st.sampled_from(places(tree)))
        action = data.draw(st.sampled_from(["set", "delete", "rename"]))
        if action == "set" or isinstance(container, list):
            container[key] = data.draw(VALUES)
        else:
            value = container.pop(key)
            if action == "rename":
                container[data.draw(st.text(max_size=6) | st.sampled_from(["../x", "k_cache", "scale"]))] = value
        if not places(tree):
            break
    (folder / "meta.json").write_text(json.dumps(tree))
    assert_ends_well(folder)


@settings(max_examples=EXAMPLES, deadline=None)
@given(text=st.binary(max_size=60))
def test_any_bytes_as_meta(text: bytes) -> None:
    folder, _ = restored("top_k/ties")
    (folder / "meta.json").write_bytes(text)
    assert check(folder).status == "broken"


@pytest.mark.parametrize("case", CASES)
@settings(max_examples=EXAMPLES, deadline=None)
@given(data=st.data())
def test_any_contents_with_the_right_hash(case: str, data: st.DataObject) -> None:
    folder, meta = restored(case)
    side = data.draw(st.sampled_from(list(SIDES)))
    name = f"{SIDES[side]}.{data.draw(st.sampled_from(sorted(meta[side])))}.bin"
    raw = np.frombuffer((folder / name).read_bytes(), np.uint8).copy()
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(raw) - 1))
        raw[at : at + data.draw(st.integers(1, 4))] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]))
    rewrite(folder, name, raw)
    assert_ends_well(folder)
