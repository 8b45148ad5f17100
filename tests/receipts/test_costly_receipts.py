"""Receipts that ask for more than a server accepts: not checked, and neither parsed nor run."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from pydantic import ValidationError

from samebits import LLM, SamplingParams
from samebits.cli.main import app
from samebits.cli.replay import read_entries
from samebits.core import request_limits
from samebits.core.errors import BadInput
from samebits.core.request_limits import (
    MAX_BANNED_WORDS,
    MAX_BIASES,
    MAX_GRAMMAR_CHARS,
    MAX_LISTED_IDS,
    MAX_STOP_CHARS,
    MAX_STOPS,
)
from samebits.core.sampling_defaults import NEUTRAL
from samebits.engine.bans import Bans
from samebits.engine.notary import params_of, sampling_of
from samebits.receipts import record
from samebits.receipts.kinds import TooCostly
from samebits.receipts.record import MAX_CONTAINERS, Receipt, Sampling, from_json
from samebits.receipts.verdict import Cause
from samebits.server.bodies.openai import ChatBody
from samebits.server.http.errors import ApiError
from samebits.server.limits import Limits

Json = dict[str, Any]
LARGEST: Json = {  # of each field the most that is accepted
    "stop": ["x" * MAX_STOP_CHARS] * MAX_STOPS,
    "bad_words": ["x" * MAX_STOP_CHARS] * MAX_BANNED_WORDS,
    "logit_bias": [[i, 0.5] for i in range(MAX_BIASES)],
    "stop_token_ids": list(range(MAX_LISTED_IDS)),
    "allowed_token_ids": list(range(MAX_LISTED_IDS)),
    "shown_ids": list(range(MAX_LISTED_IDS)),
}
TOO_MUCH: Json = {
    **{name: [*items, [MAX_BIASES, 0.5] if name == "logit_bias" else items[0]] for name, items in LARGEST.items()},
    "stop: a long one": ["x" * (MAX_STOP_CHARS + 1)],
    "bad_words: a long one": ["x" * (MAX_STOP_CHARS + 1)],
    "grammar": "x" * (MAX_GRAMMAR_CHARS + 1),
    "JSON": [[]] * MAX_CONTAINERS,
}


@pytest.fixture(scope="module")
def receipt(llm: LLM) -> Receipt:
    found = llm.generate(["hello hi"], SamplingParams(max_tokens=4, seed=1, receipt=True))[0].receipt
    assert found is not None
    return found


def with_part(receipt: Receipt, name: str, value: Any) -> bytes:
    made = json.loads(receipt.to_json())
    if name == "grammar":
        made["grammar"] = {"kind": "regex", "source": value}
    else:
        made["sampling"][name.partition(":")[0]] = value
    return json.dumps(made).encode()


@pytest.mark.parametrize("name", TOO_MUCH)
def test_one_more_than_a_server_accepts_is_not_looked_at(receipt: Receipt, name: str) -> None:
    with pytest.raises(TooCostly, match=name.partition(":")[0]) as caught:
        from_json(with_part(receipt, name, TOO_MUCH[name]))
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("name", LARGEST)
def test_as_much_as_a_server_accepts_is_read(receipt: Receipt, name: str) -> None:
    found = from_json(with_part(receipt, name, LARGEST[name]))
    assert len(getattr(found.sampling, name)) == len(LARGEST[name])


@pytest.mark.parametrize("name", sorted(set(TOO_MUCH) - {"grammar", "JSON"}))
def test_an_answer_that_could_not_be_checked_gets_no_receipt(name: str) -> None:
    """What a receipt may state is refused when the answer is asked for, and not when it is checked."""
    field, value = name.partition(":")[0], TOO_MUCH[name]
    value = dict(value) if field == "logit_bias" else frozenset(range(len(value))) if field == "shown_ids" else value
    assert SamplingParams(**{field: value})
    with pytest.raises(BadInput, match=f"{field} .*for an answer with a receipt"):
        SamplingParams(**{field: value}, receipt=True)


def test_the_largest_request_with_a_receipt_is_one_that_is_read_again(receipt: Receipt) -> None:
    asked: Json = {**LARGEST, "logit_bias": dict(LARGEST["logit_bias"]), "shown_ids": frozenset(LARGEST["shown_ids"])}
    params = SamplingParams(**asked, seed=1, receipt=True).resolved(NEUTRAL)
    again = from_json(replace(receipt, sampling=sampling_of(params)).to_json())
    assert params_of(again.sampling) == replace(params, receipt=False)


BODY: Json = {"messages": [{"role": "user", "content": "hi"}]}


@pytest.mark.parametrize("name", sorted(set(TOO_MUCH) - {"shown_ids", "JSON", "stop"}))
def test_a_server_has_the_same_limits(name: str) -> None:
    field, value = name.partition(":")[0], TOO_MUCH[name]
    value = {str(i): v for i, v in value} if field == "logit_bias" else value
    with pytest.raises((ValidationError, ApiError)):
        assert ChatBody.model_validate({**BODY, field: value}).output_format is None
    least = {str(i): v for i, v in LARGEST["logit_bias"]} if field == "logit_bias" else LARGEST.get(field, "a")
    assert ChatBody.model_validate({**BODY, field: least})


def test_no_server_takes_more_stop_strings() -> None:
    assert Limits(max_stops=MAX_STOPS)
    with pytest.raises(BadInput, match="max_stops"):
        Limits(max_stops=MAX_STOPS + 1)


def test_every_list_of_a_receipt_has_a_shared_bound() -> None:
    """A new list needs a limit in core/request_limits.py, and a check when a receipt is asked for."""
    shared = {value for value in vars(request_limits).values() if isinstance(value, int)}
    several = record.record_schema(Sampling)["properties"]
    lists = {n: s if "maxItems" in s else s["anyOf"][0] for n, s in several.items() if "array" in json.dumps(s)}
    assert set(lists) == set(request_limits.MAX_ITEMS)
    for name, schema in lists.items():
        assert schema["maxItems"] == request_limits.MAX_ITEMS[name]
        assert schema["maxItems"] in shared
        assert schema["items"].get("maxLength", MAX_STOP_CHARS) in shared


def test_what_is_too_costly_is_unchecked_with_status_3(
    llm: LLM, receipt: Receipt, model_path: Path, tmp_path: Path
) -> None:
    file = tmp_path / "costly.jsonl"
    made = [with_part(receipt, name, value) for name, value in TOO_MUCH.items()]
    file.write_bytes(b"\n".join([receipt.to_json(), *made]))
    entries = list(read_entries(file))
    assert [e.verdict and e.verdict.cause for e in entries] == [None] + [Cause.UNCHECKED] * len(TOO_MUCH)
    done = CliRunner().invoke(app, ["replay", str(file), "--model", str(model_path)], catch_exceptions=False)
    assert done.exit_code == 3
    first, *others = done.stdout.splitlines()
    assert "same bits: 4 tokens" in first
    assert all(": not checked: it cannot be checked here: receipt: " in line for line in others)


DAMAGED = {
    "deep lists": b'{"version":1,"sha256":' + b"[" * 200_000,
    "deep objects": b'{"a":' * 200_000,
    "deep in a field": b'{"version":1,"sha256":"0","model":' + b"[" * 900 + b"]" * 900 + b"}",
    "a number of many digits": b'{"version":1,"sha256":' + b"9" * 100_000 + b"}",
    "a number that is too large": b'{"version":1e999999999,"sha256":"0"}',
    "NaN": b'{"version":NaN,"sha256":"0"}',
    "many values": b'{"version":1,"sha256":[' + b"1," * 6_000_000 + b"1]}",
    "a long name": b'{"version":1,"sha256":"0","' + b"\\u001b[2J" * 50_000 + b'":1}',
    "a long text": b'{"version":"' + b"x" * 2_000_000 + b'","sha256":"0"}',
    "half a character": b'{"version":1,"sha256":"\\ud800"}',
    "a byte order mark": b'\xef\xbb\xbf{"version":1}',
    "zeros": bytes(1000),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_hostile_json_is_a_short_line(tmp_path: Path, name: str) -> None:
    file = tmp_path / "hostile.json"
    file.write_bytes(DAMAGED[name])
    (entry,) = read_entries(file)
    assert entry.verdict is not None
    assert not entry.verdict.is_same
    line = entry.verdict.line(None, "cpu")
    assert line.isprintable()
    assert len(line) < 400
    assert re.match(r"no receipt that can be read: |not checked: ", line)


def test_a_file_of_very_many_lines_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "lines.jsonl"
    file.write_bytes(b"\n" * ((1 << 20) + 1))
    with pytest.raises(BadInput, match="lines, but must have at most"):
        list(read_entries(file))


class Counted(tuple[int, ...]):
    """Ids that count how often they are searched from the start."""

    num_searches = 0

    def __contains__(self, token: object) -> bool:
        type(self).num_searches += 1
        return super().__contains__(token)


def test_a_long_list_of_ids_is_not_searched_for_every_token(llm: LLM) -> None:
    params = SamplingParams(max_tokens=20, seed=1, ignore_eos=True, include_stop=True, min_tokens=20)
    object.__setattr__(params, "stop_token_ids", Counted(range(200, 240)))
    job = llm.engine.generate(llm.encode("hello hi"), params)
    llm.engine.complete(job)
    assert job.num_answer_tokens == 20
    assert Counted.num_searches <= 1


def test_an_id_that_is_allowed_many_times_is_kept_once(llm: LLM) -> None:
    params = SamplingParams(max_tokens=4, seed=1, allowed_token_ids=(90, 70, 70) * 1000)
    bans = Bans(llm.tokenizer, params, frozenset())
    assert bans._allowed is not None
    assert bans._allowed.tolist() == [70, 90]
    bias = np.arange(llm.runner.vocab_size, dtype=np.float32)
    bans.apply(bias, 0, [])
    assert np.flatnonzero(np.isfinite(bias)).tolist() == [70, 90]
    assert bias[[70, 90]].tolist() == [70.0, 90.0]
