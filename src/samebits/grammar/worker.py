"""The processes of grammars: formats come from strangers, so each is compiled and followed where it can be ended.

The first process holds the vocabulary and forks a child for every format; that one compiles it within bounds of time
and memory, and forks a child for every request, which computes the masks of that request alone. A process that
breaks a bound is ended by the kernel, and each ends when the server closes its socket, or ends itself.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

import llguidance
from llguidance.gbnf_to_lark import any_to_lark

from samebits.grammar.wire import (
    ASK,
    COMPILED,
    FORK,
    GRAMMAR,
    HELLO,
    JSON_SCHEMA,
    LARK,
    MASK,
    OPEN,
    REFUSED,
    REGEX,
    STOPPED,
    Bounds,
    frame,
    receive,
    receive_frame,
)
from samebits.grammar.work import check_schema, schemas_in
from samebits.loaders import Tokenizer
from samebits.loaders.files import open_file, read_tokenizer

# The compiler's limits are stated, not left to its defaults, so that they change only with ours. Who changes one counts
# up BOUNDS_VERSION in core/grammar_library.py.
LIMITS = llguidance.LLParserLimits(
    max_items_in_row=2_000,
    initial_lexer_fuel=1_000_000,
    step_lexer_fuel=200_000,
    step_max_items=50_000,
    max_lexer_states=25_000,
    max_grammar_size=500_000,
    verbose_errors=False,
)


def _from_grammar(text: str) -> str:
    """Compile a grammar in Lark or in llama.cpp's GBNF, which is translated. Raise ValueError if it cannot be read."""
    try:
        lark = any_to_lark(text)
    except Exception as error:  # the translator raises many kinds, plain Exceptions too
        raise ValueError(f"it is no grammar in GBNF or Lark: {error}") from None
    return _from_lark(str(lark))


def _from_lark(text: str) -> str:
    """Compile a grammar in Lark. Raise ValueError if the JSON schemas in it are too much work."""
    for schema in schemas_in(text):
        check_schema(schema)
    return str(llguidance.LLMatcher.grammar_from_lark(text))


def _from_schema(text: str) -> str:
    """Compile a JSON schema. Raise ValueError if it is no JSON, or too much work."""
    check_schema(json.loads(text))
    return str(llguidance.LLMatcher.grammar_from_json_schema(text))


MAKERS: dict[bytes, Callable[[str], str]] = {
    JSON_SCHEMA: _from_schema,
    REGEX: llguidance.LLMatcher.grammar_from_regex,
    LARK: _from_lark,
    GRAMMAR: _from_grammar,
}
TOO_MANY_EXPRESSIONS = "too many expressions constructed"  # the library's words for a lexer out of fuel
LEAST_SECONDS = 0.001  # a timer of 0 would never ring


class _Vocabulary:
    """A tokenizer as llguidance asks for one: bytes of every token, special ones marked."""

    def __init__(self, tokenizer: Tokenizer, end: int) -> None:
        self._tokenizer = tokenizer
        self.eos_token_id, self.bos_token_id = end, tokenizer.special.bos
        self.tokens = [tokenizer.decode_bytes([i]) for i in range(tokenizer.vocab_size)]
        self.special_token_ids = sorted(tokenizer.control_ids)

    def __call__(self, text: str | bytes) -> list[int]:
        as_text = text if isinstance(text, str) else text.decode("utf-8", "replace")
        return self._tokenizer.encode(as_text, add_special=False, parse_special=False)


def fork_on_request(control: socket.socket) -> socket.socket:
    """Forks for every socket that comes. Returns in the children alone, with theirs, through which they have greeted.

    Ends when `control` does.
    """
    while True:
        data, sockets, _, _ = socket.recv_fds(control, len(FORK), 1)
        if not data:
            os._exit(0)
        if os.fork() == 0:
            control.close()
            stream = socket.socket(fileno=sockets[0])
            stream.sendall(frame(HELLO))
            return stream
        for number in sockets:
            os.close(number)


def reap(*_: object) -> None:
    """Takes the statuses of children that have ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return  # there are no more


def mapped_bytes() -> int:
    """Memory that this process has mapped; 0 where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def bound_memory(more_bytes: int) -> None:
    """Limits this process to that many bytes beyond what it has mapped, where the system can count them."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if mapped := mapped_bytes():
        resource.setrlimit(resource.RLIMIT_AS, (mapped + more_bytes, resource.RLIM_INFINITY))


def compile_format(
    stream: socket.socket, library: llguidance.LLTokenizer, bounds: Bounds
) -> llguidance.LLMatcher | None:
    """Compiles what the server sends, tells it how that went, and returns the matcher; None for a refused format."""
    kind, _, payload = receive_frame(stream)
    before = mapped_bytes()
    bound_memory(bounds.compile_bytes)
    signal.setitimer(signal.ITIMER_PROF, bounds.compile_seconds)
    signal.setitimer(signal.ITIMER_REAL, bounds.compile_seconds * bounds.wall_factor)
    try:
        text = payload.decode("utf-8")
        matcher = llguidance.LLMatcher(library, str(MAKERS[kind](text)), log_level=0, limits=LIMITS)
        error = matcher.get_error()
        if not error:
            first = matcher.deep_copy()
            first.compute_bitmask()  # only here do some formats show what they cost, or that no text fits them
            error = first.get_error()
    except (ValueError, RuntimeError) as raised:  # RecursionError, of deep JSON, is a RuntimeError
        error = str(raised)
    signal.setitimer(signal.ITIMER_PROF, 0)
    signal.setitimer(signal.ITIMER_REAL, 0)
    if error:
        stream.sendall(frame(REFUSED, payload=_reason(error)))
        return None
    stream.sendall(frame(COMPILED, mapped_bytes() - before))
    return matcher


def _reason(error: str) -> bytes:
    """Return the library's reason, with the limit where it leaves that out."""
    limit = f"{TOO_MANY_EXPRESSIONS} (limit for a token: {LIMITS.step_lexer_fuel})"
    text = error.replace("<non-verbose/>", "").replace(TOO_MANY_EXPRESSIONS, limit)
    return text.encode("utf-8", "replace")


def follow_answers(stream: socket.socket, root: llguidance.LLMatcher, bounds: Bounds) -> None:
    """Sends a mask for every sample that is opened and after every token, until the server has no more."""
    bound_memory(bounds.answer_bytes)
    matchers: dict[int, llguidance.LLMatcher] = {}
    num_masks, start = 0, time.process_time()
    while True:
        kind, sample, token = ASK.unpack(receive(stream, ASK.size))
        num_masks += 1
        left = bounds.burst_seconds + num_masks * bounds.mask_seconds - (time.process_time() - start)
        signal.setitimer(signal.ITIMER_PROF, max(LEAST_SECONDS, left))
        if kind == OPEN:
            matchers[sample] = root.deep_copy()
        elif not matchers[sample].is_stopped():
            matchers[sample].consume_token(token)
        reply = mask_frame(matchers[sample], sample)
        signal.setitimer(signal.ITIMER_PROF, 0)
        stream.sendall(reply)


def mask_frame(matcher: llguidance.LLMatcher, sample: int) -> bytes:
    """The mask of a sample's next token, or why there is none."""
    bits = b"" if matcher.is_stopped() else matcher.compute_bitmask()
    if error := matcher.get_error():
        return frame(REFUSED, sample, _reason(error))
    return frame(MASK, sample, bits) if bits else frame(STOPPED, sample)


def main() -> None:
    """`worker.py FD SETTINGS`: FD is the control socket; SETTINGS in JSON: path, vocab_size, end, bounds."""
    control, settings = socket.socket(fileno=int(sys.argv[1])), json.loads(sys.argv[2])
    bounds = Bounds(**settings["bounds"])
    tokenizer = read_tokenizer(open_file(Path(settings["path"])), settings["vocab_size"])
    wrapped = llguidance.TokenizerWrapper(_Vocabulary(tokenizer, settings["end"]))
    library = llguidance.LLTokenizer(wrapped, n_vocab=settings["vocab_size"])
    wrapped.tokens = wrapped._gtokenizer.tokens = ()  # the library has its own
    signal.signal(signal.SIGCHLD, reap)
    gc.collect()
    gc.freeze()  # children should not touch the pages they share
    try:
        format_stream = fork_on_request(control)
        if matcher := compile_format(format_stream, library, bounds):
            follow_answers(fork_on_request(format_stream), matcher, bounds)
    except (EOFError, ConnectionError):
        os._exit(0)  # the server has closed its socket
    os._exit(0)


if __name__ == "__main__":
    main()
