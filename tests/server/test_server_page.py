"""The page in a real browser, driven over its debugging protocol: it talks, draws, and reaches nothing else."""

from __future__ import annotations

import base64
import itertools
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from live_server import Running
from websockets.sync.client import ClientConnection, connect

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-port=0"]


class Tab:
    """One page; `ask` evaluates JavaScript in it, `wait` until it is true."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket, self._ids = socket, itertools.count(1)
        self.events: list[dict[str, Any]] = []

    def send(self, method: str, **params: Any) -> Any:
        number = next(self._ids)
        self._socket.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            reply = json.loads(self._socket.recv(30))
            if reply.get("id") == number:
                return reply.get("result")
            self.events.append(reply)

    def ask(self, script: str) -> Any:
        return self.send("Runtime.evaluate", expression=script, returnByValue=True)["result"].get("value")

    def wait(self, script: str, seconds: float = 20.0) -> None:
        deadline = time.monotonic() + seconds
        while not self.ask(script):
            assert time.monotonic() < deadline, f"never true: {script}"
            time.sleep(0.05)


@contextmanager
def browser_tab(folder: Path, url: str) -> Iterator[Tab]:
    command = [str(BROWSER), *FLAGS, f"--user-data-dir={folder}", "about:blank"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        port_file, deadline = folder / "DevToolsActivePort", time.monotonic() + 60
        while not (port_file.exists() and port_file.read_text().count("\n")):
            assert time.monotonic() < deadline, "the browser does not start"
            time.sleep(0.05)
        port = port_file.read_text().split()[0]
        targets = httpx.get(f"http://127.0.0.1:{port}/json/list").json()
        address = next(t["webSocketDebuggerUrl"] for t in targets if t["type"] == "page")
        with connect(address, max_size=None) as socket:
            tab = Tab(socket)
            for domain in ("Page", "Network", "Runtime"):
                tab.send(f"{domain}.enable")
            tab.send("Page.navigate", url=url)
            yield tab
    finally:
        process.terminate()
        process.wait(30)


@pytest.mark.skipif(BROWSER is None, reason="no chromium here; Debian's package is enough")
def test_the_page_chats_and_draws(server: Running, tmp_path: Path) -> None:
    with browser_tab(tmp_path / "profile", f"{server.url}/") as tab:
        tab.wait(
            "document.readyState === 'complete' && document.getElementById('model').textContent.includes('samebits-')"
        )
        tab.ask("document.getElementById('text').value = 'hello hi'; document.getElementById('form').requestSubmit()")
        tab.wait("!document.getElementById('send').disabled && document.querySelectorAll('.assistant').length === 1")
        assert tab.ask("document.querySelector('.user').textContent") == "hello hi"
        assert tab.ask("document.querySelector('.assistant').textContent.length") > 0
        assert tab.ask("document.querySelectorAll('.error').length") == 0
        assert tab.ask("document.getElementById('tier').textContent") == "portable"
        tab.wait("document.querySelectorAll('#steps rect').length > 2")
        tab.wait("document.getElementById('pages-text').textContent.includes('of ')")
        if shot := os.environ.get("SAMEBITS_SCREENSHOT"):
            Path(shot).write_bytes(base64.b64decode(tab.send("Page.captureScreenshot")["data"]))
        asked = [e["params"]["request"]["url"] for e in tab.events if e.get("method") == "Network.requestWillBeSent"]
        assert all(url.startswith(server.url) for url in asked)
        problems = [e for e in tab.events if e.get("method") == "Runtime.exceptionThrown"]
        assert problems == []
    server.check_idle()
