"""Every format of a tensor's elements: importing this fills FORMATS."""

from samebits.core.format import FORMATS, Packed, format_of
from samebits.formats import plain as plain
from samebits.formats.iq4_nl import IQ4_NL
from samebits.formats.iq4_xs import IQ4_XS
from samebits.formats.mxfp4 import MXFP4
from samebits.formats.nvfp4 import NVFP4
from samebits.formats.q2_k import Q2_K
from samebits.formats.q3_k import Q3_K
from samebits.formats.q4_0 import Q4_0
from samebits.formats.q4_1 import Q4_1
from samebits.formats.q4_k import Q4_K
from samebits.formats.q5_0 import Q5_0
from samebits.formats.q5_1 import Q5_1
from samebits.formats.q5_k import Q5_K
from samebits.formats.q6_k import Q6_K
from samebits.formats.q8_0 import Q8_0

__all__ = [
    "FORMATS",
    "IQ4_NL",
    "IQ4_XS",
    "MXFP4",
    "NVFP4",
    "Q2_K",
    "Q3_K",
    "Q4_0",
    "Q4_1",
    "Q4_K",
    "Q5_0",
    "Q5_1",
    "Q5_K",
    "Q6_K",
    "Q8_0",
    "Packed",
    "format_of",
]
