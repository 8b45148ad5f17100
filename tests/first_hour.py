"""A new user's path, timed: install, first answer, chat, a server with three clients, the proof, a receipt replayed.

    python tests/first_hour.py            # with the environment of this Python, in some ten seconds
    python tests/first_hour.py --fresh    # installs this clone into a new environment first: minutes, it compiles

The commands are those of README.md. If the default model is not in the cache, a tiny model with random weights stands
in for it, and the first line says so. Ends with status 1 at the first step that does not do what README.md says.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
START_SECONDS, STEP_SECONDS, INSTALL_SECONDS = 60, 120, 1800
NUM_OTHERS = 31
CLIENTS = ("openai", "anthropic")
SERVER_LOG, READY = "server.log", re.compile(r"ready at (http://\S+?),? ")
QUESTION = "Why is the sky blue?"
# A file of two tiny layers under the default model's name, whose checksum is noted as that of the real file.
STAND_IN = """
import sys
from pathlib import Path
from samebits.loaders.catalog import DEFAULT_MODEL, MODELS
from samebits.loaders.integrity import note_checked
sys.path[:0] = sys.argv[2:]
from random_tiny import write_random_tiny
packaged = MODELS[DEFAULT_MODEL]
path = write_random_tiny(Path(sys.argv[1]) / packaged.file_name)
note_checked(path, packaged.sha256, path.stat())
"""
HAS_DEFAULT = """
from samebits.loaders.catalog import DEFAULT_MODEL
from samebits.loaders.obtain import is_at_hand
raise SystemExit(0 if is_at_hand(DEFAULT_MODEL) else 1)
"""
OPENAI = """
import sys
from openai import OpenAI
client = OpenAI(base_url=sys.argv[1] + "/v1", api_key="none")
model = client.models.list().data[0].id
parts = client.chat.completions.create(
    model=model, max_tokens=16, stream=True, messages=[{"role": "user", "content": sys.argv[2]}]
)
print("".join(part.choices[0].delta.content or "" for part in parts if part.choices))
"""
ANTHROPIC = """
import sys
from anthropic import Anthropic
client = Anthropic(base_url=sys.argv[1], api_key="none")
message = client.messages.create(model="", max_tokens=16, messages=[{"role": "user", "content": sys.argv[2]}])
assert message.role == "assistant" and message.usage.output_tokens > 0, message
print(message.content[0].text if message.content else "")
"""


class Broken(Exception):
    """A step did not do what README.md says."""


class Steps:
    """Runs steps one after the other, and prints the time of each."""

    def __init__(self) -> None:
        self.total_seconds = 0.0

    def run(self, name: str, step: Callable[[], Any]) -> Any:
        start = time.monotonic()
        result = step()
        seconds = time.monotonic() - start
        self.total_seconds += seconds
        print(f"{seconds:8.1f} s  {name}", flush=True)
        return result


class Installed:
    """An environment with Samebits, and a new user's folder to work in."""

    def __init__(self, python: Path, folder: Path) -> None:
        self.python, self.folder = python, folder
        self.environment = dict(os.environ)

    def command(self, line: str) -> list[str]:
        """Return a command of README.md as this environment runs it."""
        program, *arguments = shlex.split(line, comments=True)
        if program != "samebits":
            raise Broken(f"README.md: {line!r} is no command of samebits")
        return [str(self.python.parent / program), *arguments]

    def output(self, command: list[str], seconds: float = STEP_SECONDS) -> str:
        """Run a command in the user's folder, and return what it prints. Raise Broken if it fails."""
        done = subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=seconds, check=False
        )
        if done.returncode:
            raise Broken(f"{shlex.join(command)[:200]}: exit status {done.returncode}\n{done.stderr[-2000:]}")
        return done.stdout

    def answer(self, command: list[str]) -> None:
        if not self.output(command).strip():
            raise Broken(f"{shlex.join(command)}: no answer")


def readme_line(start: str) -> str:
    """Return the first command line of README.md that begins so."""
    found = re.search(rf"^{re.escape(start)}.*$", (ROOT / "README.md").read_text(), re.MULTILINE)
    if found is None:
        raise Broken(f"README.md has no line that begins with {start!r}")
    return found[0]


def install(folder: Path) -> Path:
    """Install this clone with the line of README.md into a new environment, and two clients beside it."""
    environment = folder / "environment"
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    python = environment / "bin" / "python"
    _, *arguments = shlex.split(readme_line("pip install"), comments=True)
    for more in (arguments, ["install", *CLIENTS]):
        command = [str(python), "-m", "pip", "-q", "--disable-pip-version-check", *more]
        subprocess.run(command, cwd=ROOT, check=True, timeout=INSTALL_SECONDS)
    return python


def prepare_model(user: Installed) -> str:
    """Put a tiny model in place of the default one if the cache does not have that; return which one is used."""
    found = subprocess.run(
        [str(user.python), "-c", HAS_DEFAULT], env=user.environment, check=False, timeout=STEP_SECONDS
    )
    if not found.returncode:
        return "the default model, from the cache"
    cache = user.folder / "cache"
    cache.mkdir()
    user.environment["SAMEBITS_CACHE"] = str(cache)
    paths = [str(ROOT / "tests" / name) for name in ("engine", "loaders")]
    user.output([str(user.python), "-c", STAND_IN, str(cache), *paths])
    return "a tiny model with random weights, since the default one is not in the cache"


@contextmanager
def serving(user: Installed) -> Iterator[subprocess.Popen[bytes]]:
    """Run README.md's server on a port that the system chooses, so that no other server can have it."""
    command = [*user.command(readme_line("samebits serve")), "--port", "0"]
    with (user.folder / SERVER_LOG).open("w") as file:
        server = subprocess.Popen(command, cwd=user.folder, env=user.environment, stdout=file, stderr=file)
    try:
        yield server
    finally:
        server.terminate()
        try:
            server.wait(START_SECONDS)
        except subprocess.TimeoutExpired:
            server.kill()
            raise


def healthy_url(user: Installed, server: subprocess.Popen[bytes]) -> str:
    """Return the server's address once it is healthy. Raise Broken if it ends, or takes too long."""
    deadline, log = time.monotonic() + START_SECONDS, user.folder / SERVER_LOG
    while time.monotonic() < deadline and server.poll() is None:
        if found := READY.search(log.read_text()):
            with urllib.request.urlopen(f"{found[1]}/health", timeout=5) as reply:
                if reply.status == 200:
                    return found[1]
        time.sleep(0.05)
    raise Broken(f"the server is not healthy:\n{log.read_text()[-2000:]}")


def post(url: str, body: dict[str, Any]) -> dict[str, Any]:
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=STEP_SECONDS) as reply:
        found = json.loads(reply.read())
    assert isinstance(found, dict)
    return found


def ask_with_curl(user: Installed, url: str) -> None:
    """Ask in Ollama's protocol, as a user without any client would."""
    body = {"model": "", "messages": [{"role": "user", "content": QUESTION}], "options": {"num_predict": 16}}
    command = ["curl", "-sS", "--fail-with-body", f"{url}/api/chat", "-d", json.dumps(body | {"stream": False})]
    reply = json.loads(user.output(command))
    if not reply["done"] or reply["message"]["role"] != "assistant":
        raise Broken(f"/api/chat: {reply}")


def prove(url: str) -> str:
    """Compare the hash of all logits of a request that is alone with that of the same request among 31 others."""

    def hash_of(prompt: str, seed: int) -> str:
        body = {"prompt": prompt, "max_tokens": 24, "temperature": 0.8, "seed": seed, "logits_sha256": True}
        return str(post(f"{url}/v1/completions", body)["choices"][0]["logits_sha256"])

    alone = hash_of(QUESTION, 7)
    with ThreadPoolExecutor(NUM_OTHERS + 1) as pool:
        others = [pool.submit(hash_of, f"{QUESTION} {i}", i) for i in range(NUM_OTHERS)]
        together = pool.submit(hash_of, QUESTION, 7).result()
        if len({other.result() for other in others}) < NUM_OTHERS:
            raise Broken("other requests have the same hash")
    if alone != together:
        raise Broken(f"alone {alone}, together {together}")
    return alone


def replay(user: Installed, url: str) -> None:
    """Get an answer with its receipt, and make it again from that."""
    body = {"messages": [{"role": "user", "content": QUESTION}], "max_tokens": 24, "receipt": True}
    choice = post(f"{url}/v1/chat/completions", body)["choices"][0]
    path = user.folder / "receipt.json"
    path.write_text(json.dumps(choice["receipt"]))
    said = user.output(user.command(f"samebits replay {path}"))
    if "same bits" not in said:
        raise Broken(f"replay: {said}")


def take(user: Installed, steps: Steps) -> None:
    """Take the path after the installation."""
    print(f"model: {steps.run('the model is there', lambda: prepare_model(user))}")
    run = [*user.command(readme_line("samebits run")), "--max-tokens", "24"]
    steps.run("samebits run: the first answer", lambda: user.answer(run))
    chat = user.command(f"samebits chat {shlex.quote(QUESTION)} --max-tokens 24")
    steps.run("samebits chat", lambda: user.answer(chat))
    with serving(user) as server:
        url = steps.run("samebits serve: healthy", lambda: healthy_url(user, server))
        steps.run("client: curl, Ollama's protocol", lambda: ask_with_curl(user, url))
        for name, code in zip(CLIENTS, (OPENAI, ANTHROPIC), strict=True):
            command = [str(user.python), "-c", code, url, QUESTION]
            steps.run(f"client: {name}'s package", lambda command=command: user.output(command))  # type: ignore[misc]
        digest = steps.run(f"proof: alone and among {NUM_OTHERS} others", lambda: prove(url))
        print(f"both: {digest}")
        steps.run("a receipt, replayed", lambda: replay(user, url))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--fresh", action="store_true", help="install this clone into a new environment first")
    arguments = parser.parse_args()
    steps, folder = Steps(), Path(tempfile.mkdtemp(prefix="first-hour-"))
    try:
        home = folder / "home"
        home.mkdir()
        python = Path(sys.executable)
        if arguments.fresh:
            python = steps.run("install into a new environment", lambda: install(folder))
        user = Installed(python, home)
        if not arguments.fresh:
            steps.run("samebits --version", lambda: user.output(user.command("samebits --version")))
        take(user, steps)
    except (Broken, OSError, subprocess.SubprocessError) as error:
        sys.exit(f"the first hour stops here: {error}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{steps.total_seconds:8.1f} s  in all")


if __name__ == "__main__":
    main()
