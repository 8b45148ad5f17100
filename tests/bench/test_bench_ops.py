"""`samebits bench ops`, the read ceiling, and random weights."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from samebits.bench import ceiling
from samebits.bench.ops import op_cases
from samebits.bench.random_weights import random_weight
from samebits.cli.main import app
from samebits.core.format import Packed, format_of


def test_ops_are_timed_against_a_ceiling(tmp_path: Path) -> None:
    page = tmp_path / "ops.html"
    options = ("--backend", "reference", "--only", "norm/decode", "--json", "--plot", str(page))
    result = CliRunner(env={"COLUMNS": "160"}).invoke(app, ["bench", "ops", *options], catch_exceptions=False)
    (timing,) = json.loads(result.stdout)["timings"]
    assert (timing["op"], timing["case"], timing["tier"]) == ("fused_add_rms_norm", "decode", "portable")
    assert timing["share"] == pytest.approx(timing["gigabytes_per_second"] / timing["read_gigabytes_per_second"])
    assert "of ceiling" in result.stderr
    assert page.read_text().count("<svg") == 2


def test_every_case_binds() -> None:
    labels = [case.label for case in op_cases()]
    assert len(labels) == len(set(labels))
    small = [case for case in op_cases() if case.name.startswith("decode") and "_k" not in case.name]
    assert {case.call().op.name for case in small} == {"gemm", "paged_attention", "fused_add_rms_norm", "silu_and_mul"}


def test_an_unknown_case_is_a_line() -> None:
    result = CliRunner().invoke(app, ["bench", "ops", "--only", "conv"])
    assert "--only is 'conv', but must be a part of a label" in str(result.exception)


def test_native_reader_is_asked_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    class Native:
        @staticmethod
        def read_bandwidth(num_bytes: int, threads: int) -> float:
            asked.append((num_bytes, threads))
            return 42e9

    monkeypatch.setattr(ceiling, "native", lambda: Native)
    assert ceiling.read_ceiling(1000, 2) == 42.0
    assert asked == [(1000, 2)]
    assert ceiling.ceiling_source() == "native"


def test_a_busy_machine_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ceiling, "usable_threads", lambda: 4)
    monkeypatch.setattr("os.getloadavg", lambda: (2.0, 9.0, 9.0))
    assert ceiling.busy_line() == ""
    monkeypatch.setattr("os.getloadavg", lambda: (3.14, 0.0, 0.0))
    assert "load 3.1 on 4 processors" in ceiling.busy_line()


def test_numpy_reads_where_nothing_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ceiling, "native", lambda: object())
    monkeypatch.setattr(ceiling, "MIN_BYTES_READ", 1 << 18)
    assert ceiling.ceiling_source() == "numpy"
    assert ceiling.read_ceiling(1 << 16, 2) > 0
    assert ceiling.read_ceiling(1, 3) > 0


@pytest.mark.parametrize("fmt", ["q4_0", "q8_0", "q4_k", "q6_k", "nvfp4", "mxfp4", "bf16"])
def test_random_weights_have_the_spread_of_a_model(fmt: str) -> None:
    weight = random_weight(fmt, (64, 512), seed=3)
    assert (weight.shape, format_of(weight).name) == ((64, 512), fmt)
    values = weight.unpack() if isinstance(weight, Packed) else weight.astype(np.float32)
    assert values.std() == pytest.approx(0.02, rel=0.1)
    assert abs(values.mean()) < 0.002
