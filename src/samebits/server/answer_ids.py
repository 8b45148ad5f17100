"""Prefixes of answers' ids. A request's id follows, by which the receipts of the answer are found."""

PREFIXES = CHAT, COMPLETION, RESPONSE, MESSAGE, RERANK = ("chatcmpl-", "cmpl-", "resp_", "msg_", "rerank-")
