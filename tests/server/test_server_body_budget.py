"""Bodies of many connections that are read at once: their memory is bounded, and small ones are served beside them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from live_server import Running, running
from raw_client import open_socket, read_to_end

from samebits.server.bodies.budget import BodyBudget, PendingBody
from samebits.server.http.errors import ApiError
from samebits.server.limits import MAX_BODIES, Limits

MAX_BODY_BYTES = 1 << 16
HEAD = b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"


def bytes_in(bodies: list[PendingBody]) -> int:
    return sum(len(body.data) for body in bodies)


def refused(budget: BodyBudget, body: PendingBody, chunk: bytes = b"x") -> bool:
    try:
        budget.add(body, chunk)
    except ApiError as error:
        return error.status == 503
    return False


def test_the_sum_is_bounded_and_the_largest_of_the_greediest_goes() -> None:
    budget = BodyBudget(1000)
    with ExitStack() as stack:
        mine = [stack.enter_context(budget.body("mine")) for _ in range(3)]
        other = stack.enter_context(budget.body("other"))
        budget.add(other, bytes(400))
        for body, num_bytes in zip(mine, (100, 300, 150), strict=True):
            budget.add(body, bytes(num_bytes))
        assert budget.num_bytes == bytes_in([*mine, other]) == 950
        budget.add(other, bytes(100))  # 1050: `mine` holds more in all, though no body of its own is as large
        assert [len(body.data) for body in (*mine, other)] == [100, 0, 150, 500]
        assert refused(budget, mine[1])
        assert refused(budget, other, bytes(700))
        assert budget.num_bytes == bytes_in([*mine, other]) == 250
    assert budget.num_bytes == 0
    assert not budget._bodies


def test_a_whole_body_is_kept() -> None:
    budget = BodyBudget(1000)
    with budget.body("a") as whole, budget.body("b") as late:
        budget.add(whole, bytes(1000))
        budget.complete(whole)
        assert refused(budget, late)
        assert len(whole.data) == 1000
        with pytest.raises(ApiError):
            budget.complete(late)
    with budget.body("b") as body:
        budget.add(body, bytes(1000))


def test_many_small_chunks_are_bounded_too() -> None:
    budget, most = BodyBudget(1000), 0
    with ExitStack() as stack:
        bodies = [stack.enter_context(budget.body(str(i % 7))) for i in range(50)]
        for i in range(5000):
            body = bodies[i * 31 % 50]
            assert refused(budget, body, bytes(i % 13)) == body.is_given_up
            most = max(most, bytes_in(bodies))
            assert budget.num_bytes == bytes_in(bodies) <= 1000
    assert most > 900


@pytest.fixture(scope="module")
def narrow(model_path: Path) -> Iterator[Running]:
    with running(model_path, limits=Limits(max_body_bytes=MAX_BODY_BYTES)) as it:
        yield it


def test_a_server_reads_so_many_bodies_at_once(narrow: Running) -> None:
    """Each lacks its last byte; those that were given up get 503 when it comes, and a small body is read meanwhile."""
    body = b'"' + b"x" * (MAX_BODY_BYTES - 4) + b'"'  # no object
    request = HEAD + f"Content-Length: {len(body)}\r\n\r\n".encode() + body
    with ExitStack() as stack, narrow.client() as client:
        socks = [stack.enter_context(closing(open_socket(narrow.url))) for _ in range(3 * MAX_BODIES)]
        for sock in socks:
            sock.sendall(request[:-1])
        for _ in range(5):
            assert client.post("/tokenize", json={"text": "hi"}).status_code == 200
        for sock in socks:
            sock.sendall(request[-1:])
        answers = Counter(read_to_end(sock).split(b" ")[1] for sock in socks)
        assert answers.keys() <= {b"400", b"503"}
        assert 0 < answers[b"400"] <= MAX_BODIES + 1
        assert client.post("/tokenize", json={"text": "hi"}).status_code == 200
