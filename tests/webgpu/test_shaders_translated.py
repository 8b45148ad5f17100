"""Every shader as naga writes it for Vulkan, Metal and D3D12: the rounding barrier is kept, and nothing around it could
be contracted, reordered or computed with less accuracy. It has not run there; this is what can be known without."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from all_shaders import all_shaders
from spirv_floats import findings
from translated import Translated, translate

import samebits.kernels.wgsl
from samebits.kernels.wgsl.lib.compose import source

SOURCES = Path(samebits.kernels.wgsl.__file__).parent
# Builtins of WGSL that may round, each device in its own way; and types of 16 bits.
INEXACT = re.compile(
    r"(?<!fn )\b(a?(cos|sin|tan)h?|atan2|cross|degrees|distance|dot|exp2?|faceForward|fma|fract|inverseSqrt|ldexp|"
    r"length|log2?|mix|modf|normalize|u?n?pack2x16\w+|u?n?pack4x8[us]norm|pow|quantizeToF16|radians|reflect|refract|"
    r"smoothstep|sqrt)\s*\(|\bf16\b|\bvec\dh\b|\benable\b"
)
# Functions of Metal's library in translated shaders: exact, or about integers and order.
EXACT_IN_METAL = re.compile(
    r"abs|all|any|atomic_\w+|clamp|clz|ctz|extract_bits|insert_bits|max|min|popcount|select|sign|threadgroup_barrier|"
    r"ceil|floor|rint|trunc|u?int\d|float\d"
)
# Rows of a table that another node made, which no case of one op has; nothing is computed.
MOVES_ONLY = {"products/gather"}
BARRIER = re.compile(r"bitcast<(?:vec\d<)?u32>+\(\w+\) \^ (?:vec\d\()?P\.zero")
# Where else the barrier's word may stand: in a constant, and hidden behind a lane's number.
NO_CONDITION = re.compile(r"bitcast<f32>\(0x\w+u \| P\.zero\)|nothing = lane & P\.zero;")
# A shader to plant defects in.
SOUND = f"""
struct Params {{ zero: u32, count: u32 }}
@group(0) @binding(0) var<uniform> P: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
{source("snippets/rounding")}
{source("snippets/elementary")}
@compute @workgroup_size(1) fn main() {{
    var sum = 0.0;
    for (var i = 0u; i < P.count; i++) {{ sum = add(sum, mul(x[i], x[i])); }}
    y[0] = rsqrt(sum);
}}
"""
TERM = "sum = add(sum, mul(x[i], x[i]));"
PLANTED = {
    "a product without its barrier": ("return rounded(a * b);", "return a * b;"),
    "a sum without its barrier": ("return rounded(a + b);", "return a + b;"),
    "a barrier with a constant": ("^ P.zero", "^ 0u"),
    "a barrier with another word": ("^ P.zero", "^ P.count"),
    "no exclusive or": ("bitcast<u32>(x) ^ P.zero", "bitcast<u32>(x)"),
    "bare operators": (TERM, "sum = sum + x[i] * x[i];"),
    "a bare sum in a loop": (TERM, "sum += mul(x[i], x[i]);"),
    "fma": (TERM, "sum = rounded(fma(x[i], x[i], sum));"),
    "a division": (TERM, "sum = add(sum, x[i] / 3.0);"),
    "a square root": ("= rsqrt(sum)", "= inverseSqrt(sum)"),
}


@cache
def translations() -> dict[str, Translated]:
    """Text -> its translations, of all shaders and of those with defects: naga starts once."""
    texts = [*all_shaders(), SOUND, *(SOUND.replace(*change) for change in PLANTED.values())]
    return dict(zip(texts, translate(texts), strict=True))


def barriers_lost(text: str, translated: str, cast: str) -> list[str]:
    """A line unless every barrier of the text is an exclusive or of bits in the translation."""
    kept = 0
    for loaded in re.finditer(r"uint (\w+) = P\.zero;", translated):
        rest_of_function = translated[loaded.end() :].partition("\n}\n")[0]
        kept += bool(re.search(rf"{cast}\([^;]*\) \^ [^;]*\b{loaded[1]}\b", rest_of_function))
    wanted = len(BARRIER.findall(text))
    return [] if kept == wanted > 0 else [f"{kept} of {wanted} barriers are kept"]


def problems_in_metal(text: str, msl: str) -> list[str]:
    called = set(re.findall(r"metal::(\w+)\(", msl))
    found = [f"metal::{name}" for name in sorted(called) if not EXACT_IN_METAL.fullmatch(name)]
    found += re.findall(r"\bfast::\w+|\bprecise::\w+|\bhalf\d?\b|#pragma.*", msl)
    return found + barriers_lost(text, msl, r"as_type<(?:metal::)?uint\d?>")


def in_all_shaders(problems: Callable[[str, Translated], list[str]]) -> set[str]:
    return {
        f"{shader}: {line}" for text, shader in all_shaders().items() for line in problems(text, translations()[text])
    }


def test_every_shader_is_looked_at() -> None:
    """A file that no case of its op reaches would go unchecked. The probe tries what kernels must not do."""
    files = {path.relative_to(SOURCES).with_suffix("").as_posix() for path in SOURCES.rglob("*.wgsl")}
    kernels = {name for name in files if not name.startswith(("snippets/", "probe/"))}
    assert kernels == set(all_shaders().values()) | MOVES_ONLY


def test_no_source_calls_a_builtin_that_may_round() -> None:
    found = {
        f"{path.relative_to(SOURCES)}: {match.group()}"
        for path in SOURCES.rglob("*.wgsl")
        for line in path.read_text().splitlines()
        for match in INEXACT.finditer(line.partition("//")[0])
    }
    assert found == set()


def test_no_condition_depends_on_the_barriers_word() -> None:
    """lavapipe compiles the value of such a word into the shader: then it is a 0 that everyone sees, and no barrier."""
    found = {
        f"{path.relative_to(SOURCES)}: {line.strip()}"
        for path in SOURCES.rglob("*.wgsl")
        for line in path.read_text().splitlines()
        if "P.zero" in NO_CONDITION.sub("", BARRIER.sub("", line.partition("//")[0]))
    }
    assert found == set()


def test_no_sum_or_product_takes_an_unrounded_one() -> None:
    assert in_all_shaders(lambda _, made: findings(made.spirv)) == set()


def test_metal_keeps_the_barrier_and_calls_nothing_inexact() -> None:
    assert in_all_shaders(lambda text, made: problems_in_metal(text, made.msl)) == set()


def test_d3d12_keeps_the_barrier() -> None:
    assert in_all_shaders(lambda text, made: barriers_lost(text, made.hlsl, "asuint")) == set()


@pytest.mark.skipif(shutil.which("spirv-val") is None, reason="no spirv-val here; Debian's spirv-tools has it")
def test_spirv_is_valid(tmp_path: Path) -> None:
    for number, text in enumerate(all_shaders()):
        (tmp_path / f"{number}.spv").write_bytes(translations()[text].spirv)
    checks = [["spirv-val", "--target-env", "vulkan1.1", str(file)] for file in sorted(tmp_path.iterdir())]
    assert [done.stderr for c in checks if (done := subprocess.run(c, capture_output=True, text=True)).returncode] == []


@pytest.mark.parametrize("name", PLANTED)
def test_planted_defects_are_found(name: str) -> None:
    old, new = PLANTED[name]
    assert old in SOUND
    assert findings(translations()[SOUND].spirv) == []
    assert findings(translations()[SOUND.replace(old, new)].spirv) != []


@pytest.mark.parametrize("name", ["a barrier with a constant", "no exclusive or", "fma", "a square root"])
def test_planted_defects_are_found_in_metal(name: str) -> None:
    made = translations()[SOUND.replace(*PLANTED[name])]
    assert problems_in_metal(SOUND, made.msl) != []
