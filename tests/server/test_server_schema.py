"""schemathesis over the schema, with what fits it and with what does not: no fault, and errors in one shape."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, settings
from live_server import NAME, Running, running
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

from samebits.server.limits import Limits
from samebits.server.openapi import schema

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
QUICK = settings(max_examples=2, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)


@pytest.fixture(scope="module")
def bounded(model_path: Path) -> Iterator[Running]:
    """Answers end soon, whatever they ask for; one thread, because threads of a tiny model mostly wait."""
    with running(
        model_path, {"context_len": 24, "threads": 1}, limits=Limits(deadline_seconds=0.3, max_samples=4)
    ) as it:
        yield it


@pytest.fixture(scope="module")
def session() -> Iterator[requests.Session]:
    """One for thousands of requests: each of its own would look for proxies and certificates."""
    with requests.Session() as it:
        it.trust_env = False
        yield it


WHOLE = schema(NAME)  # made once: its models take a fifth of a second
OPERATIONS = [(path, method) for path, item in WHOLE["paths"].items() for method in item]


def _operation(mode: GenerationMode, request: pytest.FixtureRequest) -> schemathesis.BaseSchema:
    path, method = request.param
    request.node._nodeid = request.node.nodeid  # schemathesis reads it there, where pytest 9 has none
    found = schemathesis.openapi.from_dict({**WHOLE, "paths": {path: {method: WHOLE["paths"][path][method]}}})
    found.config.generation.update(modes=[mode])
    return found


# Requests are made when a test runs: made at collection, those of all operations cost each test process seconds.
@pytest.fixture(params=OPERATIONS, ids=" ".join)
def what_fits(request: pytest.FixtureRequest) -> schemathesis.BaseSchema:
    return _operation(GenerationMode.POSITIVE, request)


@pytest.fixture(params=[o for o in OPERATIONS if o[1] == "post"], ids=" ".join)
def what_does_not_fit(request: pytest.FixtureRequest) -> schemathesis.BaseSchema:
    return _operation(GenerationMode.NEGATIVE, request)


@schemathesis.pytest.from_fixture("what_fits").parametrize()
@QUICK
def test_what_fits_never_breaks_the_server(
    case: schemathesis.Case, bounded: Running, session: requests.Session
) -> None:
    """Values that fit the schema may still be too many, too long or no tokens: then a 4xx says so."""
    case.call_and_validate(base_url=bounded.url, session=session, checks=CHECKS)


@schemathesis.pytest.from_fixture("what_does_not_fit").parametrize()
@QUICK
def test_what_does_not_fit_is_refused(case: schemathesis.Case, bounded: Running, session: requests.Session) -> None:
    case.call_and_validate(base_url=bounded.url, session=session, checks=[*CHECKS, negative_data_rejection])


def test_pages_are_free_afterwards(bounded: Running) -> None:
    bounded.check_idle()
