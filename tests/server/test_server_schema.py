"""schemathesis over the schema: whatever fits it is served, whatever does not is refused, and nothing breaks."""

from __future__ import annotations

import httpx
import pytest
import schemathesis
from conftest import Running
from hypothesis import HealthCheck, settings

QUICK = settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="session")
def schema(server: Running) -> schemathesis.BaseSchema:
    return schemathesis.openapi.from_dict(httpx.get(f"{server.url}/openapi.json").json())
