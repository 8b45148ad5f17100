"""A call in Python's syntax, with literals as keyword arguments: read, never run."""

from __future__ import annotations

import ast
import warnings

from samebits.server.tools.reading import Broken, ParsedCall

MAX_CHARS = 1 << 16  # Python's parser is recursive


def parse_python_call(text: str) -> ParsedCall:
    """`name(key=literal, ...)`, the name with dots or without; Broken for anything else."""
    if len(text) > MAX_CHARS:
        raise Broken
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes that Python does not know
            call = ast.parse(text.strip(), mode="eval").body
        if not isinstance(call, ast.Call) or call.args:
            raise Broken
        arguments = {}
        for keyword in call.keywords:
            if keyword.arg is None:
                raise Broken
            arguments[keyword.arg] = ast.literal_eval(keyword.value)
        return ParsedCall(ast.unparse(call.func), arguments)
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        raise Broken from None
