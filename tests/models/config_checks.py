"""What tests of configurations share: files that state something else, and what must come of them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from checkpoint_runs import DATA
from test_bad_checkpoints import damaged_folder, refusal
from test_config_defaults import config_with

from samebits.core.errors import SamebitsError
from samebits.loaders.fields import Fields
from samebits.models.checkpoint import FileCheckpoint, open_checkpoint, read_config

ANYTHING = (None, 0, 3, -1, 1 << 40, 1.5, "x", [], {}, ["mamba"], np.array([1, 2, 3], np.int32))


def gguf_with(name: str, change: dict[str, Any]) -> Callable[[], Any]:
    """Reads the configuration of a tiny GGUF file with other metadata; None leaves a key out."""
    checkpoint = open_checkpoint(DATA / name / "model-f32.gguf")
    assert isinstance(checkpoint, FileCheckpoint)
    metadata = checkpoint.file.metadata | change
    fields = Fields({k: v for k, v in metadata.items() if v is not None}, str(checkpoint.path))
    return lambda: read_config(fields, True, checkpoint.file.tensors)


def check_says_the_same(tmp_path: Path, name: str, change: dict[str, Any], without: str) -> None:
    """A folder whose config.json is changed has the configuration of the one that is stored."""
    assert open_checkpoint(config_with(tmp_path, name, change, without)).config == open_checkpoint(DATA / name).config


def check_folder_refused(tmp_path: Path, name: str, config: dict[str, Any], problem: str, need: str) -> None:
    """A folder whose config.json is changed is refused in a line that names it."""
    folder = damaged_folder(tmp_path, name, config)
    message = refusal(lambda: open_checkpoint(folder))
    assert message.startswith(str(folder)), message
    check_line(message, problem, need)


def check_line(message: str, problem: str, need: str) -> None:
    """A refusal says what was given, and then what is needed."""
    assert problem in message, message
    assert need in re.split(", but must |, which is |is missing: ", message, maxsplit=1)[1], message


def check_anything_in_any_key(file: str) -> None:
    """Whatever a key of a folder or a GGUF file holds is read, or refused in a line."""
    checkpoint, is_gguf = open_checkpoint(DATA / file), file.endswith(".gguf")
    stated = checkpoint.file.metadata if is_gguf else json.loads((DATA / file / "config.json").read_text())
    refused = []
    for key in stated:
        for value in ANYTHING[: None if is_gguf else -1]:
            try:
                fields = Fields({**stated, key: value}, "x")
                architecture, config = read_config(fields, is_gguf, checkpoint.file.tensors)
                replace(checkpoint, config=config, tensors=architecture.tensors(config, is_gguf)).check()
            except SamebitsError as error:
                refused.append(str(error))
    assert len(refused) > 50
    assert not any("\n" in line for line in refused)
