"""Files of conversations: what was written is read, and anything else is refused in a line that names the place."""

from __future__ import annotations

from pathlib import Path

import pytest

from samebits.cli.chat import conversation as conversations
from samebits.cli.chat.conversation import Conversation, load, sampling_of, save
from samebits.core.errors import BadInput
from samebits.engine.sampling import SamplingParams

USER = '{"role": "user", "content": "hi"}'


def test_what_was_saved_is_read(tmp_path: Path) -> None:
    talk = Conversation()
    talk.set_system("be brief")
    talk.add_turn("hällo\nwörld \u2028", "ok")
    params = SamplingParams(temperature=0.5, seed=2**63, stop=["a", "b"], logit_bias={3: -1.5})
    save(tmp_path / "talk.jsonl", talk, "smollm2", params)
    found, settings = load(tmp_path / "talk.jsonl")
    assert found == talk
    assert settings["model"] == "smollm2"
    assert sampling_of(settings, SamplingParams()) == params


def test_messages_alone_are_a_conversation_too(tmp_path: Path) -> None:
    (tmp_path / "plain.jsonl").write_text(USER + "\n")
    found, settings = load(tmp_path / "plain.jsonl")
    assert found.messages == [{"role": "user", "content": "hi"}]
    usual = SamplingParams(seed=1)
    assert sampling_of(settings, usual) is usual


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"hello\n", "load: talk.jsonl, line 1 is b'hello', but must be a JSON object"),
        (b"\xff\xfe\x00\n", "load: talk.jsonl, line 1 is b'\\xff\\xfe\\x00', but must be a JSON object"),
        (b"[" * 100_000, "load: talk.jsonl, line 1 is b'[[["),
        (USER.encode() + b"\n7\n", "load: talk.jsonl, line 2 is b'7', but must be a JSON object"),
        (b'{"role": "robot", "content": "hi"}', "load: talk.jsonl, line 1 is {'role': 'robot'"),
        (
            b'{"role": "user", "content": 7}',
            "load: talk.jsonl, line 1 is {'role': 'user', 'content': 7}, but must be a",
        ),
        (USER.encode() + b'\n{"role": "system", "content": "late"}', "load: talk.jsonl, line 2 is {'role': 'system'"),
        (b'{"settings": 3}', "load: talk.jsonl, line 1 has other settings"),
    ],
)
def test_other_files_are_refused_in_a_line(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "talk.jsonl").write_bytes(content)
    with pytest.raises(BadInput) as caught:
        load(tmp_path / "talk.jsonl")
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 250


def test_a_file_beyond_the_bound_is_not_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversations, "MAX_FILE_BYTES", 10)
    (tmp_path / "big.jsonl").write_text(USER)
    with pytest.raises(BadInput, match="file is more than 10 bytes, but must be a conversation"):
        load(tmp_path / "big.jsonl")


@pytest.mark.parametrize("sampling", ['{"top_p": 7}', '{"max_token": 7}', '{"temperature": NaN}'])
def test_settings_that_cannot_be_meant_are_refused(tmp_path: Path, sampling: str) -> None:
    (tmp_path / "talk.jsonl").write_text(f'{{"settings": {{"model": "x", "sampling": {sampling}}}}}\n')
    _, settings = load(tmp_path / "talk.jsonl")
    with pytest.raises(BadInput):
        sampling_of(settings, SamplingParams())
