"""`samebits shader` prints what is compiled, without a device."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from samebits.cli.main import app
from samebits.core.errors import BadInput, UnknownName, Unsupported

pytest.importorskip("wgpu", reason="the webgpu extra is not installed")
LLAMA = str(Path(__file__).parents[1] / "models" / "data" / "llama")


def printed(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["shader", *arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0
    return result.stdout


def test_an_op_prints_its_bindings_and_one_whole_shader() -> None:
    text = printed("rms_norm")
    head, bindings, *_ = text.splitlines()
    assert head.startswith("// rows/")
    assert head.endswith("-> f32[3, 96]")
    assert bindings.startswith("// bindings: ")
    assert "weight: f32[96]" in bindings
    assert text.count("fn main(") == 1
    assert "fn rounded(x: f32)" in text  # a snippet
    assert "var<storage, read> weight: " in text


def test_a_case_has_its_own_constants() -> None:
    assert "f32[576]" in printed("rms_norm", "--case", "smollm2-135m")
    with pytest.raises(UnknownName, match="unknown case of rms_norm 'none'"):
        printed("rms_norm", "--case", "none")


def test_a_models_nodes_are_found_by_op_and_name() -> None:
    """Layers that are alike print one shader."""
    assert printed("rms_norm", "--model", LLAMA).count("fn main(") == 1
    with pytest.raises(BadInput, match=r"op and --node is rms_norm, 'layers\.99', but must be one of this model's"):
        printed("rms_norm", "--model", LLAMA, "--node", "layers.99")


def test_what_does_not_go_together_is_refused() -> None:
    with pytest.raises(BadInput, match="op is missing: it must be an op, or --model"):
        printed()
    with pytest.raises(BadInput, match="given without --model, but must be given with it"):
        printed("rms_norm", "--node", "x")
    with pytest.raises(BadInput, match="are both given: give one of them"):
        printed("rms_norm", "--case", "plain", "--model", LLAMA)
    with pytest.raises(Unsupported, match="float32 activations"):
        printed("rms_norm", "--case", "small-f16")
