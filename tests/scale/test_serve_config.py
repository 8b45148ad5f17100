"""A cluster that is there: the Serve config file of docs/scale.md, deployed by Ray's own command and updated while
answers are under way, and servers that join."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from live_server import free_port, plain_client
from test_server_process import process, wait_healthy

pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own
DOCS = Path(__file__).parents[2] / "docs" / "scale.md"
NUM_GPUS, NUM_STREAMS, SERVED_SECONDS = 2, 2, 1200
NUM_CPUS = 4  # Ray starts a process for each: two replicas, their server and its next edition
FIRST_LEN, NEXT_LEN = 1024, 1536  # of contexts
DRAIN_SECONDS = 600.0  # for answers under way: the update takes most of a small machine, and none may be cut
DEPLOY_ATTEMPTS = 3  # Ray's own clients give up early on a machine that has little time for them


@dataclass
class Deployed:
    """A Ray cluster with resources that are called GPUs, and what `serve run` has deployed there."""

    address: str
    model: Path
    folder: Path
    port: int = field(default_factory=free_port)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def deploy(self, context_len: int) -> None:
        """The file of the docs with a small model, two replicas and one server, on our port."""
        config = yaml.safe_load(re.findall(r"```yaml\n(.*?)```", DOCS.read_text(), re.DOTALL)[0])
        (application,) = config["applications"]
        args = {"model": str(self.model), "backend": "cpu", "threads": 1, "context_len": context_len}
        application["args"] |= {**args, "api_key": "key", "drain_seconds": DRAIN_SECONDS}
        replica, server = application["deployments"]
        del replica["autoscaling_config"]
        replica["num_replicas"], server["num_replicas"] = 2, 1
        config["http_options"] = {"host": "127.0.0.1", "port": self.port}
        path = self.folder / "config.yaml"
        path.write_text(yaml.safe_dump(config))
        command = [sys.executable, "-c", "from ray.serve.scripts import cli; cli()", "run", "--non-blocking"]
        for _ in range(DEPLOY_ATTEMPTS):
            done = subprocess.run([*command, "--address", self.address, str(path)], capture_output=True, text=True)
            if done.returncode == 0:
                return
        pytest.fail(f"serve run: {done.stderr[-3000:]}")

    def wait_for(self, context_len: int) -> None:
        """Until a model of that length is served."""
        deadline = time.monotonic() + SERVED_SECONDS
        while True:
            assert time.monotonic() < deadline, "it is not served"
            try:
                with self.client() as client:
                    reply = client.get("/v1/models")
                if reply.status_code == 200 and reply.json()["data"][0]["max_model_len"] == context_len:
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.2)

    def client(self) -> httpx.Client:
        return plain_client(base_url=self.url, timeout=120, headers={"authorization": "Bearer key"})

    def streamed(self, seed: int) -> tuple[str, set[str]]:
        """(text, fingerprints) of a streamed answer."""
        body = {"prompt": f"s {seed}", "max_tokens": 400, "seed": seed, "ignore_eos": True, "stream": True}
        texts, fingerprints = [], set()
        with self.client() as client, client.stream("POST", "/v1/completions", json=body) as answer:
            assert answer.status_code == 200, answer.read()
            for line in answer.iter_lines():
                if line.startswith("data: {"):
                    chunk = json.loads(line[6:])
                    texts.append(chunk["choices"][0]["text"])
                    fingerprints.add(chunk["system_fingerprint"])
        return "".join(texts), fingerprints


@pytest.fixture
def deployed(model_path: Path, tmp_path: Path) -> Iterator[Deployed]:
    """A cluster on which nothing was started so far: servers that join at once must agree on who starts Serve."""
    ray = pytest.importorskip("ray")
    context: Any = ray.init(
        "local",
        num_cpus=NUM_CPUS,
        num_gpus=NUM_GPUS,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=1 << 27,
    )
    try:
        yield Deployed(context.address_info["gcs_address"], model_path, tmp_path)
    finally:
        ray.shutdown()


def test_an_update_mixes_no_answers_and_loses_none(deployed: Deployed) -> None:
    import ray

    deployed.deploy(FIRST_LEN)
    deployed.wait_for(FIRST_LEN)
    assert ray.cluster_resources()["GPU"] == NUM_GPUS
    assert not ray.available_resources().get("GPU"), "a replica has no GPU of its own"
    answers: list[tuple[int, str, set[str]]] = []
    failures: list[Exception] = []
    is_over = threading.Event()

    def keep_asking(seed: int) -> None:
        try:
            while not is_over.wait(0.5):  # so that the update gets on
                answers.append((seed, *deployed.streamed(seed)))
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=keep_asking, args=(seed,)) for seed in range(NUM_STREAMS)]
    for thread in threads:
        thread.start()
    try:
        deployed.deploy(NEXT_LEN)
        deployed.wait_for(NEXT_LEN)
    finally:
        is_over.set()
        for thread in threads:
            thread.join(120)
    answers += [(seed, *deployed.streamed(seed)) for seed in range(NUM_STREAMS)]
    assert not failures
    assert all(len(fingerprints) == 1 for _, _, fingerprints in answers)
    assert len(set().union(*(fingerprints for _, _, fingerprints in answers))) == 2  # one for each edition
    assert len({(seed, text) for seed, text, _ in answers}) == NUM_STREAMS  # the length changes no short answer


def test_servers_that_join_at_once_keep_apart(deployed: Deployed) -> None:
    from ray import serve

    before = set(serve.status().applications)
    ports = [free_port(), free_port()]
    names = {f"samebits-{socket.gethostname()}-{port}" for port in ports}
    flags = ["--model", str(deployed.model), "--threads", "1", "--ray-address", deployed.address]
    with process(*flags, "--port", str(ports[0])) as first, process(*flags, "--port", str(ports[1])) as second:
        urls = [f"http://127.0.0.1:{port}" for port in ports]
        for url, server in zip(urls, (first, second), strict=True):
            wait_healthy(url, server, SERVED_SECONDS)
        assert set(serve.status().applications) == before | names
        second.terminate()
        second.communicate(timeout=120)
        body = {"prompt": "a b", "max_tokens": 4, "ignore_eos": True}  # a draw may be the end of the text
        answer = httpx.post(f"{urls[0]}/v1/completions", json=body, timeout=120, verify=False)
        assert answer.json()["usage"]["completion_tokens"] == 4
        first.terminate()
        first.communicate(timeout=120)
    assert set(serve.status().applications) == before
