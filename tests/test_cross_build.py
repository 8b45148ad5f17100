"""Cross-building for Windows and macOS: what is derived, and how a wheel is put together. No compiler runs here."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest
from packaging.utils import parse_wheel_filename

SCRIPT = Path(__file__).parents[1] / "packaging" / "cross_build.py"


@pytest.fixture(scope="module")
def cross() -> ModuleType:
    spec = importlib.util.spec_from_file_location("packaging_cross_build", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where a dataclass looks for its annotations
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("flag", "spelled"),
    [
        ("-march=armv8-a", "-mcpu=generic"),
        ("-march=armv8.2-a+dotprod+i8mm", "-mcpu=generic+v8_2a+dotprod+i8mm"),
        ("-mavx2", "-mavx2"),
    ],
)
def test_zig_takes_an_architecture_as_a_cpu(cross: ModuleType, flag: str, spelled: str) -> None:
    assert cross.as_zig_spells(flag) == spelled


def test_sets_and_flags_are_those_of_the_build(cross: ModuleType) -> None:
    assert cross.instruction_sets("x86_64") == ["scalar", "avx2", "avx2_vnni", "avx512"]
    assert cross.instruction_sets("aarch64") == ["scalar", "neon", "neon_dotprod", "neon_i8mm"]
    assert "-mamx-int8" in cross.set_flags("avx512")
    assert cross.set_flags("neon_dotprod") == ["-mcpu=generic+v8_2a+dotprod"]
    words = cross.compiler(cross.TARGETS["win_amd64"])
    assert {"-ffp-contract=off", "-fno-fast-math", "-O2"} <= set(words)
    with pytest.raises(cross.CannotBuild, match=r"CMakeLists.txt has no 'absent"):
        cross.stated("absent")


def pure_wheel(folder: Path) -> Path:
    path = folder / "samebits-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("samebits/__init__.py", "")
        text = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        archive.writestr("samebits-0.1.0.dist-info/WHEEL", text)
        archive.writestr("samebits-0.1.0.dist-info/RECORD", "old,,\n")
    return path


def test_a_wheel_has_the_modules_their_hashes_and_one_tag(cross: ModuleType, tmp_path: Path) -> None:
    module = tmp_path / "_native.pyd"
    module.write_bytes(b"MZ")
    pure = pure_wheel(tmp_path)
    place = {"samebits/kernels/cpp/_native.pyd": module}
    wheel = cross.add_modules(pure, place, cross.TARGETS["win_amd64"], tmp_path)
    (tag,) = parse_wheel_filename(wheel.name)[3]
    assert str(tag) == "cp312-abi3-win_amd64"
    with zipfile.ZipFile(wheel) as archive:
        facts = archive.read("samebits-0.1.0.dist-info/WHEEL").decode()
        record = archive.read("samebits-0.1.0.dist-info/RECORD").decode().splitlines()
        assert archive.testzip() is None
        assert archive.read("samebits/kernels/cpp/_native.pyd") == b"MZ"
        assert sorted(line.partition(",")[0] for line in record) == sorted(archive.namelist())
    assert f"Tag: {tag}" in facts
    assert "Root-Is-Purelib: false" in facts
    digest = base64.urlsafe_b64encode(hashlib.sha256(b"MZ").digest()).rstrip(b"=").decode()
    assert f"samebits/kernels/cpp/_native.pyd,sha256={digest},2" in record
    assert "samebits-0.1.0.dist-info/RECORD,," in record
