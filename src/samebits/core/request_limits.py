"""The most that one request may ask for. Servers refuse more, and so do receipts.

A receipt states one request, so with these bounds a replay never has to do more work for it than a server would.
"""

from __future__ import annotations

MAX_STOPS = 256  # stop strings; `samebits serve --max-stops` sets a lower number
MAX_BANNED_WORDS = 256
MAX_STOP_CHARS = 1024  # of a stop string or a banned word
MAX_BIASES = 1024
MAX_LISTED_IDS = 1 << 18  # of a field that lists token ids
MAX_GRAMMAR_CHARS = 1 << 18
MAX_ITEMS = {  # of the fields of SamplingParams that list something
    "stop": MAX_STOPS,
    "bad_words": MAX_BANNED_WORDS,
    "logit_bias": MAX_BIASES,
    "stop_token_ids": MAX_LISTED_IDS,
    "allowed_token_ids": MAX_LISTED_IDS,
    "shown_ids": MAX_LISTED_IDS,
}
# CPU time for compiling one grammar, in servers and in replays. Grammars are bounded by units of work
# (grammar/work.py and the compiler's own limits); this is a safety net for grammars that those units misjudge.
GRAMMAR_SECONDS = 1.5
