"""Receipts of answers: signed where the operator has a key, and kept for a while where that is turned on."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from samebits.core.errors import BadInput
from samebits.receipts.record import Receipt
from samebits.receipts.signing import sign
from samebits.server.answer_ids import PREFIXES

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

MAX_KEPT_ANSWERS, MAX_KEPT_BYTES = 4096, 64 << 20
TOKEN_BYTES, ANSWER_TOKEN_BYTES, RECEIPT_BYTES = 40, 200, 4096  # that a kept receipt takes, or so


@dataclass
class Kept:
    """What is kept of one request: its answers' receipts by their number, and until when.

    request   stands for the request: clients may choose ids, and choose one twice
    """

    request: object
    until: float
    receipts: dict[tuple[int, int], Receipt] = field(default_factory=dict)
    num_bytes: int = 0


class ReceiptDesk:
    """Hands out receipts. Any thread may seal them; only the event loop keeps and finds them.

    key           signs every receipt that is handed out
    keep_seconds  time for which those of all requests are kept to be fetched; 0 keeps none
    """

    def __init__(
        self,
        key: Ed25519PrivateKey | None = None,
        keep_seconds: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not keep_seconds >= 0:
            raise BadInput("serve", "--receipts", keep_seconds, "seconds, 0 or more")
        self._key, self.keep_seconds, self._clock = key, keep_seconds, clock
        self._kept: OrderedDict[str, Kept] = OrderedDict()  # the oldest first
        self._num_bytes = 0

    def sealed(self, receipt: Receipt) -> Receipt:
        """The receipt, with a signature where there is a key."""
        return sign(receipt, self._key) if self._key else receipt

    def keep(self, request_id: str, request: object, prompt: int, sample: int, receipt: Receipt) -> None:
        """Keeps an answer's receipt, where that is turned on; the oldest make room, and an earlier use of the id."""
        if not self.keep_seconds:
            return
        kept = self._kept.get(request_id)
        if kept is None or kept.request is not request:
            if kept is not None:
                self._drop(request_id)
            kept = self._kept[request_id] = Kept(request, self._clock() + self.keep_seconds)
        num_bytes = RECEIPT_BYTES + TOKEN_BYTES * len(receipt.prompt_ids)
        num_bytes += ANSWER_TOKEN_BYTES * len(receipt.answer.token_ids)
        kept.receipts[prompt, sample] = receipt
        kept.num_bytes += num_bytes
        self._num_bytes += num_bytes
        self._make_room()

    def find(self, answer_id: str) -> list[Receipt]:
        """Those of a request, in the order of its choices, by the answer's id or the request's; none if not kept."""
        self._make_room()
        prefix = next((p for p in PREFIXES if answer_id.startswith(p)), "")
        kept = self._kept.get(answer_id) or self._kept.get(answer_id.removeprefix(prefix))
        return [receipt for _, receipt in sorted(kept.receipts.items(), key=lambda item: item[0])] if kept else []

    def _make_room(self) -> None:
        now = self._clock()
        while self._kept:
            request_id, oldest = next(iter(self._kept.items()))
            is_full = len(self._kept) > MAX_KEPT_ANSWERS or self._num_bytes > MAX_KEPT_BYTES
            if oldest.until > now and not is_full:
                return
            self._drop(request_id)

    def _drop(self, request_id: str) -> None:
        self._num_bytes -= self._kept.pop(request_id).num_bytes
