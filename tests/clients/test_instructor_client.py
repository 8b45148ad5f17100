"""instructor, which asks for a model's fields as the arguments of a call."""

from __future__ import annotations

import openai
import pytest
from live_server import NAME, Running
from trip import QUESTION, Trip

instructor = pytest.importorskip("instructor", reason="needs instructor: make clients")


@pytest.mark.parametrize("mode", ["TOOLS", "JSON_SCHEMA"])
def test_a_model_is_filled(server: Running, mode: str) -> None:
    plain = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
    client = instructor.from_openai(plain, mode=getattr(instructor.Mode, mode))
    wishes = {"model": NAME, "messages": [{"role": "user", "content": QUESTION}], "temperature": 0, "max_tokens": 200}
    assert isinstance(client.chat.completions.create(response_model=Trip, max_retries=0, **wishes), Trip)
    if mode == "TOOLS":
        *_, last = client.chat.completions.create_partial(response_model=Trip, max_retries=0, **wishes)
        Trip.model_validate(last.model_dump())
