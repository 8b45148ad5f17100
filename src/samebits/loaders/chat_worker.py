"""The process that renders chat templates: sandboxed, with bounded memory, time and output.

Run by path, so that it imports jinja2 and nothing of ours. Reads a JSON request from each line of standard input
and answers with a JSON line. It ends when its input ends, or by the alarm when a template does not.
"""

from __future__ import annotations

import json
import signal
import sys
from datetime import datetime
from functools import lru_cache
from typing import Any

from jinja2 import TemplateError, meta, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment


class Refused(Exception):
    """What a template said with raise_exception, or a bound that it broke."""


class GenerationBlock(Extension):
    """`{% generation %}` marks the assistant's words for training; here its body is rendered as it is."""

    tags = {"generation"}  # noqa: RUF012  (jinja2 declares it as a plain set)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return list(parser.parse_statements(("name:endgeneration",), drop_needle=True))


def _raise_exception(message: object) -> None:
    raise Refused(f"it refuses: {message}")


def _to_json(value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, **options: Any) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, **options)


def environment(now: datetime) -> ImmutableSandboxedEnvironment:
    """The names and settings that Hugging Face gives chat templates, without chance: the clock is `now`'s."""
    env = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationBlock, loopcontrols]
    )
    del env.filters["random"], env.globals["lipsum"]
    env.filters["tojson"] = _to_json
    env.globals["raise_exception"] = _raise_exception
    env.globals["strftime_now"] = now.strftime
    return env


def render(request: dict[str, Any]) -> str:
    """The rendered text; Refused when it grows past the request's bound."""
    now = datetime.fromisoformat(request["now"]) if request["now"] else datetime.now()
    template = environment(now).from_string(request["template"])
    parts, num_chars = [], 0
    for part in template.generate(**request["variables"]):
        parts.append(part)
        num_chars += len(part)
        if num_chars > request["max_chars"]:
            raise Refused(f"more than {request['max_chars']} characters")
    return "".join(parts)


@lru_cache(maxsize=8)
def variables_of(source: str) -> frozenset[str]:
    """Return the names that a template reads and does not set, nor gets from us."""
    env = environment(datetime.now())
    return frozenset(meta.find_undeclared_variables(env.parse(source)) - env.globals.keys())


def answer(line: str) -> dict[str, str]:
    """Return a reply with "text", in one line "error", or "unread", a client's variable that the template ignores."""
    try:
        request = json.loads(line)
        for name in request["own"]:
            if name not in variables_of(request["template"]):
                return {"unread": name}
        return {"text": render(request)}
    except Refused as error:
        return {"error": str(error)}
    except SecurityError as error:
        return {"error": f"unsafe: {error}"}
    except (MemoryError, RecursionError) as error:
        return {"error": f"{type(error).__name__}: it needs too much memory or depth"}
    except TemplateError as error:
        return {"error": f"{type(error).__name__}: {error}"}
    except Exception as error:  # whatever a template's own expressions raise is the template's fault
        return {"error": f"{type(error).__name__}: {error}"}


def _limit_memory(num_bytes: int) -> None:
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (num_bytes, num_bytes))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    except (ImportError, OSError, ValueError):
        return  # not every system has this limit; the alarm and the parent's clock remain


def main() -> None:
    max_bytes, max_seconds = int(sys.argv[1]), float(sys.argv[2])
    _limit_memory(max_bytes)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for line in sys.stdin:
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, max_seconds)  # ends an orphan too, even inside a C function
        reply = json.dumps(answer(line))
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, 0)
        sys.stdout.write(reply + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
