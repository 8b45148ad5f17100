"""The tour's contrast is what really happens: numpy's product is run, and what is said of it follows from its bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from rich.console import Console

from samebits.backends.discovery import Found
from samebits.backends.interface import Caps
from samebits.cli import tour
from samebits.cli.main import app


def test_no_neighbour_changes_a_row_of_ours() -> None:
    found = tour.row_hashes()
    ours = {name: set(hashes) for name, hashes in found.items() if name != tour.BLAS}
    assert len(ours) == 6
    assert all(len(hashes) == 1 for hashes in ours.values()), ours
    assert "44c8bc89a9eb" in ours["portable, Q4_1"], "on every machine"


@pytest.mark.parametrize("is_kept", [False, True])
def test_what_is_said_of_blas_follows_from_its_bits(is_kept: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    found = tour.row_hashes()
    found[tour.BLAS] = ["a", "a", "a", "a"] if is_kept else ["a", "b", "b", "b"]
    monkeypatch.setattr(tour, "row_hashes", lambda: found)
    console = Console(record=True, width=160)
    tour._print_contrast(console)
    text = console.export_text()
    assert ("numpy's BLAS does not (red)." in text) != is_kept
    assert ("happened to on this machine" in text) == is_kept


def test_the_row_of_blas_is_a_real_product() -> None:
    """Its bits may or may not change here; a row of it is x @ weight.T, computed now."""
    stream = tour.Stream("tour")
    x, weight = stream.child("x").normal((33, 576)), stream.child("w").normal((64, 576), 0.05)
    assert tour.row_hashes()[tour.BLAS][-1] == tour._hash((x @ weight.T)[0])
    assert np.allclose((x @ weight.T)[0], x[0].astype(np.float64) @ weight.T, atol=1e-4)


def test_devices_are_three_lines() -> None:
    here: Any = object()
    found = [
        Found("cpu", "built in", here, Caps(device="avx2, 4 threads")),
        Found("null", "built in", here, Caps(device="nothing")),
        Found("cuda", "built in", None, None, "torch is not installed"),
    ]
    first, second, third = tour.device_lines(found)
    assert first.split(maxsplit=2) == ["Runs", "here:", "cpu (avx2, 4 threads)"]
    assert second.split(maxsplit=2) == ["Not", "available:", "cuda"]
    assert "samebits devices" in third


def test_it_ends_with_commands_and_shows_no_matrix() -> None:
    done = CliRunner().invoke(app, ["tour"])
    assert done.exit_code == 0
    lines = done.output.splitlines()
    assert len(lines) < 30
    assert [line.split("  ")[1] for line in lines[-3:]] == ["samebits run smollm2", "samebits serve", "samebits --help"]
    assert [line for line in lines if "gemm" in line] == []
