"""A target with one planted defect, named by $PLANTED, which an input beginning with "!" sets off."""

from __future__ import annotations

import os
from pathlib import Path

from fuzz_driver import Target, main, only_own_errors
from hypothesis import strategies as st

from samebits.core.errors import BadInput
from samebits.loaders.gguf import parse_gguf


def run(data: bytes) -> None:
    with only_own_errors():
        parse_gguf(data, Path("x.gguf"))  # something of ours: coverage needs code to count
    planted = os.environ["PLANTED"] if data.startswith(b"!") else "nothing"
    with only_own_errors():
        if planted == "abort":
            os.abort()
        if planted == "memory":
            bytearray(256 << 20)
        if planted == "time":
            sum(range(50_000_000))
        if planted == "error":
            raise KeyError("planted")
        if planted == "lines":
            raise BadInput("x", "y", "two\nlines", "one")
        raise BadInput("x", "y", "something", "something else")


if __name__ == "__main__":
    inputs = st.binary(max_size=4)
    main(Target("planted_fuzz", run, inputs, lambda: [b"good", b"!bad"], max_cpu_seconds=0.5, max_bytes=128 << 20))
