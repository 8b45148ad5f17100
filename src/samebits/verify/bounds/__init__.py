"""What `fast` may deviate: float64 expectations of each op's results, and a bound of each element's error.

A bound follows from the lengths and magnitudes of a call's sums, and from what the op's record leaves free (`freedom`).

near.py          numbers with a running error bound, and elementary functions on them
rows.py, norms.py, products.py, attention.py, recurrent.py, caches.py, codes.py    one family of ops each
expected.py      an expectation, and the rounding of its format
expectations.py  the expectations of a call
judge.py         which elements of a result are wrong
"""

from samebits.verify.bounds.judge import Arranged, Judge

__all__ = ["Arranged", "Judge"]
