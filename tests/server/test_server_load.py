"""Many streams at once, a third of them cut: nothing leaks, nothing mixes, every answer is the one it gets alone."""

from __future__ import annotations

import asyncio
import json
import os
import random
from pathlib import Path
from typing import Any

import httpx
from live_server import Running, running

SECONDS = float(os.environ.get("SAMEBITS_LOAD_SECONDS", "3"))
STREAMS = int(os.environ.get("SAMEBITS_LOAD_STREAMS", "60"))
WORDS = ("hello hi", "aaaa bb", "what is this?", "one two three", "el lo")


def body_of(number: int) -> dict[str, Any]:
    rng = random.Random(number)
    prompt = " ".join(rng.choices(WORDS, k=rng.randint(1, 12)))
    return {
        "prompt": prompt,
        "max_tokens": rng.randint(1, 30),
        "temperature": rng.choice([0, 1.0]),
        "seed": number,
        "ignore_eos": True,
        "stream": True,
    }


async def one_stream(client: httpx.AsyncClient, number: int, is_cut: bool) -> str | None:
    """The streamed text; None for one that was left in its midst."""
    text, stop_after = "", random.Random(number).randint(1, 8)
    async with client.stream("POST", "/v1/completions", json=body_of(number)) as reply:
        assert reply.status_code == 200
        async for line in reply.aiter_lines():
            if not line.startswith("data: {"):
                continue
            text += json.loads(line[6:])["choices"][0]["text"]
            stop_after -= 1
            if is_cut and stop_after == 0:
                return None
    return text


async def storm(url: str, seconds: float, streams: int) -> dict[int, str]:
    """Streams without pause for some seconds; texts of those that ended."""
    texts: dict[int, str] = {}
    limits = httpx.Limits(max_connections=streams, max_keepalive_connections=0)
    async with httpx.AsyncClient(base_url=url, verify=False, timeout=120, limits=limits) as client:
        end, counter = asyncio.get_running_loop().time() + seconds, iter(range(1 << 30))

        async def worker() -> None:
            while asyncio.get_running_loop().time() < end:
                number = next(counter)
                text = await one_stream(client, number, is_cut=number % 3 == 0)
                if text is not None:
                    texts[number] = text

        await asyncio.gather(*(worker() for _ in range(streams)))
    return texts


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def test_a_storm_of_streams(model_path: Path) -> None:
    with running(model_path, {"max_sequences": 64, "num_pages": 400}) as server:
        asyncio.run(storm(server.url, 1.0, STREAMS))  # warm
        server.check_idle()
        before = resident_bytes()
        texts = asyncio.run(storm(server.url, SECONDS, STREAMS))
        server.check_idle(30)
        assert resident_bytes() - before < 64 << 20
        assert len(texts) > STREAMS
        check_alone(server, texts)
        print(f"{len(texts)} answers, all as alone")


def test_a_mixture_among_32_others(tmp_path: Path) -> None:
    """All of a step's tokens share its experts; text and logprobs are those of each request alone."""
    from random_tiny import write_random_tiny

    async def together(url: str, count: int) -> list[Any]:
        async with httpx.AsyncClient(base_url=url, verify=False, timeout=120) as client:
            return await asyncio.gather(*(client.post("/v1/completions", json=whole_body(i)) for i in range(count)))

    def whole_body(number: int) -> dict[str, Any]:
        return {**body_of(number), "stream": False, "logprobs": 2, "max_tokens": 8}

    with running(write_random_tiny(tmp_path / "mixture.gguf", num_experts=8), {"max_sequences": 40}) as server:
        answers = [reply.json()["choices"] for reply in asyncio.run(together(server.url, 33))]
        server.check_idle()
        with server.client() as client:
            for number, among_others in enumerate(answers):
                assert client.post("/v1/completions", json=whole_body(number)).json()["choices"] == among_others


def check_alone(server: Running, texts: dict[int, str]) -> None:
    """Each text is what the same request gets on an idle server."""
    with server.client() as client:
        for number, text in texts.items():
            reply = client.post("/v1/completions", json={**body_of(number), "stream": False}).json()
            assert reply["choices"][0]["text"] == text
