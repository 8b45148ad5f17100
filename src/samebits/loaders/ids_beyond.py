"""Tokens of a tokenizer.json beyond the model's embedding, taken out before anything is built from the file.

Models of one family share a tokenizer, and the smaller ones may lack the last rows: Gemma 3 270M and 1B have none for
the `<image_soft_token>` of the 4B.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from samebits.core.errors import BadInput


def without_ids_beyond(content: Mapping[str, Any], num_ids: int, where: str) -> tuple[dict[str, Any], dict[str, int]]:
    """Return a checked tokenizer.json without the tokens from `num_ids` on, and those tokens: text and id.

    Merges that need such a token are left out too, so text that names it becomes other tokens, as in the files that
    llama.cpp converts. Raise BadInput if the model's unknown token is among them. `content` is not changed.
    """
    model, added = content["model"], content.get("added_tokens") or []
    beyond = {text: i for text, i in model["vocab"].items() if i >= num_ids}
    added_beyond = {token["content"]: token["id"] for token in added if token["id"] >= num_ids}
    if not beyond and not added_beyond:
        return dict(content), {}
    if (unknown := model.get("unk_token")) in beyond:
        raise BadInput(where, "unk_token", f"token {beyond[unknown]}", f"ids from 0 to {num_ids - 1}")
    kept = {text: i for text, i in model["vocab"].items() if i < num_ids}
    merges = [merge for merge in model["merges"] if _is_possible(merge, beyond)]
    return {
        **content,
        "model": {**model, "vocab": kept, "merges": merges},
        "added_tokens": [token for token in added if token["id"] < num_ids],
    }, beyond | added_beyond


def check_ids_kept(content: Mapping[str, Any], vocab: Mapping[str, int], where: str) -> None:
    """Raise BadInput unless the library gave every token of the file the id that the file states.

    The library counts added tokens up by itself, and may count otherwise once some are left out.
    """
    stated = content["model"]["vocab"] | {token["content"]: token["id"] for token in content["added_tokens"]}
    if (wrong := next((text for text, i in vocab.items() if stated.get(text) != i), None)) is not None:
        given = f"id {vocab[wrong]} for {wrong[:40]!r} once tokens beyond the model's ids are left out"
        raise BadInput(where, "added_tokens", given, f"its own id, {stated.get(wrong)}")


def _is_possible(merge: str | list[str], beyond: Mapping[str, int]) -> bool:
    """Return whether no part of a merge, nor its join, is a token beyond the model's ids."""
    left, right = merge if isinstance(merge, list) else merge.split(" ", 1) if " " in merge else (merge, "")
    return beyond.keys().isdisjoint((left, right, left + right))
