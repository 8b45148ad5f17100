"""A peer engine as a process: one JSON object per line on standard input, one answer per line on standard output.

`python worker.py MODULE` is run by the interpreter that has the peer, so this folder imports nothing of ours.
MODULE holds `Peer`: `load(path, threads, shape, on_gpu)` returns facts and settings, or fails if the peer cannot
compute on that side alone; `prefill`, `decode` and `serve`, where it has that, return seconds.

    {"command": "load", "path": "m.gguf", "threads": 2, "shape": {...},
     "on_gpu": false}                                                      {"facts": {...}, "settings": ["f16", ...]}
    {"command": "prefill", "num_tokens": 512, "setting": "f16"}            {"seconds": 0.6}
    {"command": "decode", "num_tokens": 32, "num_sequences": 8, "depth": 16, "setting": "f16"}
    {"command": "serve", "num_tokens": 64, "prompt_lens": [50, 800], "setting": "f16"}
"""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from typing import Any, TextIO

COMMANDS = ("load", "prefill", "decode", "serve")


def answer(peer: Any, request: dict[str, Any]) -> dict[str, Any]:
    """The reply to one request; whatever goes wrong becomes its one-line reason."""
    try:
        command = request.pop("command")
        if command not in COMMANDS:
            raise ValueError(f"unknown command {command!r}")
        result = getattr(peer, command)(**request)
        return result if command == "load" else {"seconds": result}
    except Exception as error:  # the other side decides what a failed measurement means
        return {"error": " ".join(f"{type(error).__name__}: {error}".split())}


def serve(peer: Any, requests: TextIO, replies: TextIO) -> None:
    """Answers until the input ends."""
    for line in requests:
        replies.write(json.dumps(answer(peer, json.loads(line))) + "\n")
        replies.flush()


def main() -> None:
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever the peer prints must not mix with the answers
    serve(import_module(sys.argv[1]).Peer(), sys.stdin, replies)


if __name__ == "__main__":
    main()
