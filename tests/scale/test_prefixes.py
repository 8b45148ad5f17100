"""Which replica is known to have a prefix, and what an application may be set to: no cluster is needed."""

from __future__ import annotations

import re

import numpy as np
import pytest

from samebits.core.errors import BadInput, Unavailable
from samebits.core.installing import install_command
from samebits.scale import needs
from samebits.scale.prefixes import BLOCK_TOKENS, Prefixes
from samebits.scale.settings import Settings, from_args


def prompt(*starts: int) -> np.ndarray:
    """A block for each start."""
    return np.concatenate([np.arange(start, start + BLOCK_TOKENS, dtype=np.int32) for start in starts])


def test_the_longest_prefix_wins() -> None:
    known = Prefixes()
    known.note(known.blocks(prompt(1, 2, 3), b""), "a")
    known.note(known.blocks(prompt(1, 5), b""), "b")
    assert known.longest(known.blocks(prompt(1, 2, 9), b""), ["a", "b"]) == (2, {"a"})
    assert known.longest(known.blocks(prompt(1, 8), b""), ["a", "b"]) == (1, {"a", "b"})
    assert known.longest(known.blocks(prompt(1, 2, 3), b""), ["b"]) == (1, {"b"})
    assert known.longest(known.blocks(prompt(2, 3), b""), ["a", "b"]) == (0, set())
    assert known.longest(known.blocks(prompt(1, 2, 3), b"salt"), ["a", "b"]) == (0, set())


def test_no_salt_continues_another_prompt() -> None:
    known = Prefixes()
    known.note(known.blocks(prompt(1, 2, 3), b"tenant"), "a")
    name, block = known.blocks(prompt(1), b"tenant")[0], prompt(2).tobytes()
    for salt in (name, name + block, block):
        assert known.longest(known.blocks(prompt(3), salt), ["a"]) == (0, set())


def test_a_short_prompt_has_no_blocks() -> None:
    assert Prefixes().blocks(prompt(1)[:-1], b"") == []


def test_the_oldest_blocks_and_replicas_that_are_gone_are_forgotten() -> None:
    known = Prefixes(max_blocks=3)
    known.note(known.blocks(prompt(1, 2), b""), "a")
    known.note(known.blocks(prompt(7, 8), b""), "b")
    assert known.longest(known.blocks(prompt(1, 2), b""), ["a"]) == (0, set())
    assert (known.num_blocks("a"), known.num_blocks("b")) == (1, 2)
    known.keep({"a"})
    assert known.longest(known.blocks(prompt(7, 8), b""), ["b"]) == (0, set())
    assert known.num_blocks("b") == 0


def test_arguments_of_a_config_file() -> None:
    settings = from_args({"model": "m/tiny.gguf", "context_len": 64, "max_waiting": 7, "routing": "power-of-two"})
    assert settings.llm == {"model": "m/tiny.gguf", "context_len": 64}
    assert (settings.limits.max_waiting, settings.routing, settings.name) == (7, "power-of-two", "tiny.gguf")
    assert (settings.num_gpus, Settings({"backend": "cuda"}).num_gpus) == (0, 1)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"modle": "x"}, "args is 'modle', but must be one of api_key"),
        ({"routing": "random"}, "--routing is random, but must be prefix or power-of-two"),
        ({"num_replicas": 0}, "--replicas is 0, but must be 1 or more"),
        ({"max_waiting": 0}, "max_waiting is 0, but must be more than 0"),
    ],
)
def test_arguments_that_cannot_be_meant(args: dict[str, object], message: str) -> None:
    with pytest.raises(BadInput) as error:
        from_args(args)
    assert str(error.value).startswith(message)


def test_a_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(needs, "find_spec", lambda name: None)
    with pytest.raises(Unavailable, match=re.escape(f"ray is not installed; needs {install_command('ray,server')}")):
        needs.need_ray()
