"""A folder that stores a head and says that it is tied: the head must be a copy of the embedding."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from checkpoint_runs import DATA
from test_bad_checkpoints import damaged_folder, refusal

from samebits.models.checkpoint import open_checkpoint

NAME, TIED = "gemma2", {"tie_word_embeddings": True}


def embedding() -> np.ndarray:
    tensor = open_checkpoint(DATA / NAME).tensor("embed")
    assert isinstance(tensor, np.ndarray)
    return tensor


def test_a_copy_is_let_through(tmp_path: Path) -> None:
    opened = open_checkpoint(damaged_folder(tmp_path, NAME, TIED, {"lm_head.weight": embedding()}))
    assert opened.config == open_checkpoint(DATA / NAME).config


@pytest.mark.parametrize("change", ["first row", "last row", "all rows", "fewer rows", "format"])
def test_another_head_is_refused(tmp_path: Path, change: str) -> None:
    """transformers 5 uses such a head, and earlier versions the embedding."""
    head = embedding().copy()
    if change == "fewer rows":
        head = head[:-1]
    elif change == "format":
        head = head.astype(np.float16)
    else:
        head[{"first row": slice(1), "last row": slice(-1, None), "all rows": slice(None)}[change], 0] += 1
    folder = damaged_folder(tmp_path, NAME, TIED, {"lm_head.weight": head})
    assert refusal(lambda: open_checkpoint(folder)) == (
        f"{folder}/model.safetensors: tensor lm_head.weight has other numbers than the embedding, "
        "but must have a copy of it, or tie_word_embeddings: false in config.json"
    )


def test_a_head_that_is_said_to_be_its_own_is_read(tmp_path: Path) -> None:
    head = embedding() + 1
    opened = open_checkpoint(damaged_folder(tmp_path, NAME, {"tie_word_embeddings": False}, {"lm_head.weight": head}))
    assert np.array_equal(np.asarray(opened.tensor("head")), head)
