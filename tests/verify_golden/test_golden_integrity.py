"""Artifacts from strangers: every lie is one line and exit status 2, and costs no memory."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from golden_helpers import Mutation, Shell, check, edit_meta, flip, make, rewrite

from samebits.verify.artifacts import MAX_META_BYTES


def put(*path: Any, to: object) -> Mutation:
    """A mutation that sets one place of meta.json."""

    def mutation(meta: dict[str, Any]) -> None:
        place: Any = meta
        for part in path[:-1]:
            place = place[part]
        place[path[-1]] = to

    return mutation


def drop(*path: str) -> Mutation:
    def mutation(meta: dict[str, Any]) -> None:
        place: Any = meta
        for part in path[:-1]:
            place = place[part]
        del place[path[-1]]

    return mutation


def rename_input(to: str) -> Mutation:
    return lambda meta: meta["inputs"].update({to: meta["inputs"].pop("x")})


def assert_refused(shell: Shell, root: Path, needle: str) -> None:
    """check and compare both say one line about it and leave with 2."""
    for arguments in (("golden", "check", root), ("compare", root, root)):
        tracemalloc.start()
        status, text = shell(*arguments)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert status == 2, text
        lines = [line for line in text.splitlines() if line.startswith("broken ")]
        assert len(lines) == 1, text
        assert needle in lines[0]
        assert "Traceback" not in text
        assert peak < 32 << 20


LIES: dict[str, tuple[Mutation, str]] = {
    "version": (put("version", to=2), "version is 2, but must be 1"),
    "version-bool": (put("version", to=True), "version is True"),
    "op": (put("op", to="conv9"), "op is conv9, but must be a known op"),
    "op-alias": (put("op", to="matmul"), "op is matmul"),
    "op-other": (put("op", to="add"), "config is k, which is not supported"),
    "op-list": (put("op", to=["top_k"]), "op is ['top_k'], but must be str"),
    "op-markup": (put("op", to="[/red]"), "op is [/red]"),
    "op-control": (put("op", to="\x1b[2J\ud800"), r"op is '\x1b[2J\ud800'"),
    "case": (put("case", to="../../etc"), "case is ../../etc, but must be a name of letters"),
    "case-other": (put("case", to="small-f16"), "top_k/small-f16, but must be the op and case of its folder"),
    "name-up": (rename_input("../x"), "inputs is ../x, but must be some of x"),
    "name-absolute": (rename_input("/dev/zero"), "inputs is /dev/zero"),
    "name-missing": (drop("inputs", "x"), "files is in.x.bin"),
    "output-missing": (drop("outputs", "indices"), "files is out.indices.bin"),
    "format": (put("inputs", "x", "format", to="f8"), "whose format is one of"),
    "format-other": (put("inputs", "x", "format", to="i32"), "f32 or f16 or bf16"),
    "format-block": (put("inputs", "x", "format", to="q8_0"), "format, scale, sha256, shape"),
    "entry": (put("inputs", "x", to=7), "x is 7, but must be an object"),
    "shape-transposed": (put("outputs", "values", "shape", to=[5, 8]), "what the op gives: values f32[8, 5]"),
    "shape-larger": (put("inputs", "x", "shape", to=[8, 65]), "2048 bytes, but must have 2080 for f32[8, 65]"),
    "shape-huge": (put("inputs", "x", "shape", to=[2**31 - 1, 2**31 - 1]), "bytes"),
    "shape-huge-empty": (put("inputs", "x", "shape", to=[0, 2**31 - 1]), "at most 1048576 bytes"),
    "shape-endless": (put("inputs", "x", "shape", to=[10**400]), "a list of at most 8 sizes"),
    "shape-negative": (put("inputs", "x", "shape", to=[-8, -64]), "a list of at most 8 sizes"),
    "shape-float": (put("inputs", "x", "shape", to=[8.0, 64]), "a list of at most 8 sizes"),
    "shape-rank": (put("inputs", "x", "shape", to=[1] * 99), "a list of at most 8 sizes"),
    "sha": (put("inputs", "x", "sha256", to="0" * 64), "in.x.bin has other bytes than were written"),
    "sha-short": (put("inputs", "x", "sha256", to="00"), "64 hexadecimal digits"),
    "config-unknown": (put("config", "colour", to="red"), "config is k, colour, but must be k"),
    "config-missing": (drop("config", "k"), "config is missing: it must be k"),
    "config-huge": (put("config", "k", to=10**30), "config k"),
    "config-type": (put("config", "k", to="5"), "must be int"),
    "config-beyond": (put("config", "k", to=99), "top_k: k is 99, but must be at most the row length 64"),
    "extra-key": (put("note", to="hi"), "meta.json is an unknown key 'note'"),
    "extra-newline": (put("a\nb", to="hi"), r"an unknown key 'a\nb'"),
    **{f"no-{key}": (drop(key), f"no key '{key}'") for key in ("op", "case", "config", "inputs", "provenance")},
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_in_meta_is_one_line(tmp_path: Path, shell: Shell, lie: str) -> None:
    mutation, needle = LIES[lie]
    edit_meta(make(tmp_path, "top_k", "small-f32"), mutation)
    assert_refused(shell, tmp_path, needle)


@pytest.mark.parametrize(
    ("text", "needle"),
    [
        (b"", "JSON"),
        (b"not json", "JSON"),
        (b"\xff\xfe\x00", "JSON"),
        (b"[1]", "must be an object"),
        (b"[" * 60_000, "JSON"),
        (b'{"version": ' + b"9" * 5000 + b"}", "JSON"),
        (b'{"version": NaN}', "the constant NaN"),
        (b'{"version": 1, "version": 1}', "a key twice"),
        (b" " * (MAX_META_BYTES + 1), f"at most {MAX_META_BYTES}"),
    ],
)
def test_a_meta_that_is_none_is_one_line(tmp_path: Path, shell: Shell, text: bytes, needle: str) -> None:
    (make(tmp_path, "top_k", "small-f32") / "meta.json").write_bytes(text)
    assert_refused(shell, tmp_path, needle)


@pytest.mark.parametrize("name", ["in.x.bin", "out.values.bin", "out.indices.bin"])
def test_changed_bytes_are_one_line(tmp_path: Path, shell: Shell, name: str) -> None:
    folder = make(tmp_path, "top_k", "small-f32")
    flip(folder, name, 5)
    assert_refused(shell, tmp_path, f"{name} has other bytes than were written")
    (folder / name).write_bytes(b"\0" * 3)
    assert_refused(shell, tmp_path, f"{name} has 3 bytes")
    (folder / name).unlink()
    assert_refused(shell, tmp_path, f"{name}: No such file")


def test_links_pipes_folders_and_strays_are_refused(tmp_path: Path, shell: Shell) -> None:
    folder = make(tmp_path, "top_k", "small-f32")
    (folder / "in.y.bin").write_bytes(b"")
    assert_refused(shell, tmp_path, "files is in.y.bin")
    (folder / "in.y.bin").unlink()
    (folder / "in.x.bin").rename(tmp_path / "elsewhere")
    (folder / "in.x.bin").symlink_to(tmp_path / "elsewhere")
    assert_refused(shell, tmp_path, "in.x.bin: Too many levels of symbolic links")
    (folder / "in.x.bin").unlink()
    (folder / "in.x.bin").mkdir()
    assert_refused(shell, tmp_path, "in.x.bin: Is a directory")
    (folder / "in.x.bin").rmdir()
    os.mkfifo(folder / "in.x.bin")
    assert_refused(shell, tmp_path, "in.x.bin is something else, but must be a plain file")


def test_packed_scales_and_bools_are_checked(tmp_path: Path) -> None:
    folder = make(tmp_path, "gemm", "small-nvfp4")
    for scale in (1, True, None, 1e39, 0.1, "1"):
        edit_meta(folder, put("inputs", "weight", "scale", to=scale))
        assert "must be a finite float32 number" in check(folder).reason
    edit_meta(folder, put("inputs", "weight", "shape", to=[40, 500]))
    assert "whole nvfp4 blocks" in check(folder).reason
    folder = make(tmp_path, "softmax", "mask-all")
    rewrite(folder, "in.mask.bin", np.full((4, 33), 2, np.uint8))
    assert "in.mask.bin is a bool of 2, but must be bytes 0 and 1" in check(folder).reason


def test_inputs_the_op_does_not_accept_are_one_line(tmp_path: Path, shell: Shell) -> None:
    folder = make(tmp_path, "append_paged_kv_cache", "page-edge")
    rewrite(folder, "in.positions.bin", np.full(6, 1000, np.int32))
    assert_refused(shell, tmp_path, "positions is 1000 for token 0")


def test_one_broken_artifact_does_not_hide_the_others(tmp_path: Path, shell: Shell) -> None:
    make(tmp_path, "add", "one-row")
    flip(make(tmp_path, "mul", "one-row"), "in.x.bin")
    odd = tmp_path / "add" / "odd\n[red]"
    odd.mkdir()
    status, text = shell("golden", "check", tmp_path)
    assert status == 2
    assert "1 pass, 0 fail, 0 unsupported, 2 broken" in text
    assert r"broken add/odd\n[red]: meta.json: No such file" in text


@pytest.mark.parametrize(
    ("arguments", "needle"),
    [
        (("golden", "check", "{}/none"), "No such file"),
        (("golden", "check", "{}"), "a folder without artifacts"),
        (("golden", "check", "{}", "--backend", "abacus"), "unknown backend"),
        (("golden", "check", "{}", "--tier", "none"), "numerics tier is 'none', but must be one of fast"),
        (("golden", "make", "{}", "--op", "conv9"), "unknown op"),
        (("golden", "make", "{}", "--small", "--full"), "--small and --full are both"),
        (("golden", "make", "/proc/none", "--op", "add"), "a place that can be written"),
        (("compare", "{}", "{}/none"), "a folder without artifacts"),
    ],
)
def test_mistakes_in_the_call_are_one_line(
    tmp_path: Path, shell: Shell, arguments: tuple[str, ...], needle: str
) -> None:
    status, text = shell(*(a.format(tmp_path) for a in arguments))
    assert status == 2
    assert text.startswith("error: ")
    assert text.count("\n") == 1
    assert needle in text
