"""The real peers, where an interpreter that has them is named: every kind of row on a tiny model."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from samebits.bench.ours import Settings
from samebits.bench.peer import open_peer
from samebits.bench.results import Row
from samebits.core.errors import Unavailable
from samebits.models.checkpoint import open_checkpoint

PYTHON = os.environ.get("SAMEBITS_PEER_PYTHON")
ROWS = (Row("prefill", 20), Row("decode", 2), Row("decode", 2, depth=30), Row("decode", 2, num_sequences=3, depth=16))


@pytest.mark.skipif(PYTHON is None, reason="SAMEBITS_PEER_PYTHON names no interpreter with peers")
@pytest.mark.parametrize("name", ["llama.cpp", "transformers"])
def test_a_peer_does_every_row_in_every_setting(name: str, bench_model_file: Path) -> None:
    settings = Settings(str(bench_model_file), "cpu", threads=1)
    try:
        peer = open_peer(name, PYTHON, open_checkpoint(bench_model_file), settings)
    except Unavailable as error:
        pytest.skip(str(error))
    try:
        assert peer.facts["version"]
        for setting in peer.settings:
            for row in ROWS:
                first, again = peer.seconds(row, setting), peer.seconds(row, setting)
                assert first > 0
                assert again > 0
    finally:
        peer.close()
