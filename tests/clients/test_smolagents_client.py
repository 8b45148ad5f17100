"""smolagents: an agent that must call a tool at every step."""

from __future__ import annotations

import pytest
from live_server import NAME, Running
from trip import QUESTION, get_weather

smolagents = pytest.importorskip("smolagents", reason="needs smolagents: make clients")


def test_an_agent_calls_tools(server: Running) -> None:
    model = smolagents.OpenAIServerModel(
        NAME, api_base=f"{server.url}/v1", api_key="none", temperature=0, max_tokens=150
    )
    agent = smolagents.ToolCallingAgent(
        tools=[smolagents.tool(get_weather)], model=model, max_steps=2, verbosity_level=0
    )
    assert agent.run(QUESTION) is not None
    steps = [step for step in agent.memory.steps if isinstance(step, smolagents.ActionStep)]
    names = [call.name for step in steps for call in step.tool_calls or ()]
    assert names
    assert set(names) <= {"get_weather", "final_answer"}
