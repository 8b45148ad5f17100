"""The router counts a replica's requests for as long as they are under way: those that are cancelled early too."""

from __future__ import annotations

import asyncio
from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ray", reason="needs pip install 'samebits[dev]'")

pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own, when it is imported


def router() -> Any:
    """The router without what Ray adds, which needs a cluster."""
    from samebits.scale.router import PrefixRouter

    made = object.__new__(PrefixRouter)
    made.initialize_state()
    return made


def replicas(num: int) -> list[Any]:
    return [SimpleNamespace(replica_id=SimpleNamespace(unique_id=f"r{i}"), replica_metadata={}) for i in range(num)]


def pending(name: str, num_tokens: int = 0) -> Any:
    """A request as Ray hands it to the router, its future of the running loop."""
    from ray.serve.request_router import PendingRequest

    ask = SimpleNamespace(prompt=np.zeros(num_tokens, np.int32), salt=b"", edition=None)
    return PendingRequest(args=[ask], kwargs={}, metadata=SimpleNamespace(internal_request_id=name))


def loads(made: Any) -> Counter[str]:
    return Counter(made._ongoing.values())


def test_cancelled_requests_are_no_load() -> None:
    async def main() -> None:
        made, ready = router(), replicas(2)
        for i in range(100):
            request = pending(f"request {i}")
            for _ in range(3):  # Ray asks again while no replica has room
                await made.choose_replicas(ready, request)
            request.future.cancel()
        await asyncio.sleep(0)
        assert not {**made._ongoing, **made._routing}

    asyncio.run(main())


def test_one_that_was_cancelled_before_it_is_looked_at_is_no_load() -> None:
    async def main() -> None:
        made, request = router(), pending("request")
        request.future.cancel()
        await made.choose_replicas(replicas(2), request)
        await asyncio.sleep(0)
        assert not {**made._ongoing, **made._routing}

    asyncio.run(main())


def test_routed_requests_are_load_until_they_are_completed() -> None:
    async def main() -> None:
        made, ready = router(), replicas(2)
        for i in range(10):
            request = pending(f"request {i}", 128)
            ((first,), *_) = await made.choose_replicas(ready, request)
            request.future.set_result(first)
            await asyncio.sleep(0)
            made.on_request_routed(request, first.replica_id, None)
        assert loads(made).total() == 10
        for i in range(10):
            made.on_request_completed(ready[0].replica_id, f"request {i}")
        assert not {**made._ongoing, **made._routing}

    asyncio.run(main())


def test_a_retry_that_is_cancelled_is_no_load() -> None:
    """A replica rejects the request, which gets a new future for its next one."""

    async def main() -> None:
        made, ready, request = router(), replicas(2), pending("request")
        await made.choose_replicas(ready, request)
        request.future.set_result(ready[0])
        request.reset_future()
        await made.choose_replicas(ready, request)
        await asyncio.sleep(0)
        assert loads(made).total() == 1
        request.future.cancel()
        await asyncio.sleep(0)
        assert not {**made._ongoing, **made._routing}

    asyncio.run(main())
