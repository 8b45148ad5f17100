"""KV memory by page ids: who holds which page, and which pages hold a prefix that was seen before. No tensors.

States that are not in pages lie in slots, one for each running sequence, and some for snapshots of known prefixes.
"""

from samebits.cache.pages import PageCopy, PageListener, Prefix
from samebits.cache.prefix import PrefixChain
from samebits.cache.sequences import Match, PageCache
from samebits.cache.snapshots import SlotCopy
from samebits.cache.windows import pages_for_window

__all__ = ["Match", "PageCache", "PageCopy", "PageListener", "Prefix", "PrefixChain", "SlotCopy", "pages_for_window"]
