"""Which format each tensor of a quantized file has: the one asked for, but for the tensors that this rule names.

norms, biases, other vectors        as they are; float32 where they come from 16 bits
routers, factors of rotations,      as they are; float32 where they come from a folder
taps of convolutions, and what
steers a state
embedding and head                  q6_k; q8_0 where that was asked for
rows of no whole super-block        the format below, of blocks of 32 with as many bits or more
rows of no whole block              f16
"""

from __future__ import annotations

import re

from samebits.core.errors import BadInput
from samebits.core.format import FORMATS

# The formats that can be asked for, and the number by which general.file_type calls a file of them.
FILE_TYPES = {
    "f32": 0,
    "f16": 1,
    "bf16": 32,
    "q4_0": 2,
    "q4_1": 3,
    "q5_0": 8,
    "q5_1": 9,
    "q8_0": 7,
    "q4_k": 14,
    "q5_k": 16,
    "q6_k": 18,
    "q2_k": 10,
    "q3_k": 11,
    "iq4_nl": 25,
    "iq4_xs": 30,
}
FALLBACKS = {"q4_k": "q5_0", "q5_k": "q5_1", "q6_k": "q8_0", "q2_k": "iq4_nl", "q3_k": "iq4_nl", "iq4_xs": "iq4_nl"}
PLAIN = ("f32", "f16", "bf16")
ENDS = re.compile(r"^(token_embd|output)\.weight$")
KEPT = re.compile(
    r"(norm|_inp|_inp_shexp|rope_\w+|ssm_(?!in\b|out\b)\w+|shortconv\.conv|sinks|exp_probs_b)(\.weight)?$|\.bias$"
)


def check_type(name: str) -> str:
    """The name of a format that can be asked for, in lower case; BadInput for another."""
    if name.lower() not in FILE_TYPES:
        raise BadInput("quantize", "--type", repr(name[:40]), f"one of {', '.join(FILE_TYPES)}")
    return name.lower()


def is_kept(name: str, shape: tuple[int, ...]) -> bool:
    """Whether a tensor keeps its precision whatever is asked for."""
    return len(shape) < 2 or KEPT.search(name) is not None


def format_for(name: str, shape: tuple[int, ...], stored: str, asked: str) -> str:
    """The format of a tensor in the new file, which is `stored` in the old one."""
    if is_kept(name, shape):
        return "f32" if len(shape) < 2 and stored in PLAIN else stored
    if asked in PLAIN:
        return asked
    wanted = asked
    if ENDS.match(name) and asked != "q8_0":
        wanted = "q6_k"
    if shape[-1] % FORMATS[wanted].block_len:
        wanted = FALLBACKS.get(wanted, "f16")
    return wanted if shape[-1] % FORMATS[wanted].block_len == 0 else "f16"
