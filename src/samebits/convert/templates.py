"""Chat templates in GGUF metadata: the default one, and others by their names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from samebits.core.errors import BadInput
from samebits.loaders.chat import DEFAULT, ChatTemplate
from samebits.loaders.files import TEMPLATE_KEY
from samebits.loaders.tokenizer import Tokenizer

NAMES_KEY = "tokenizer.chat_templates"
NOT_IN_A_KEY = re.compile(r"[^0-9A-Za-z]")  # as gguf-py has it


def template_metadata(sources: Mapping[str, str], tokenizer: Tokenizer, ours: Tokenizer, where: str) -> dict[str, Any]:
    """Return the keys that hold templates by their names.

    Raise BadInput for two templates whose names are one in a key, and for a template that reads a special token of the
    folder's which `ours`, the file's tokenizer, does not give it.
    """
    keys: dict[str, str] = {}
    for name, source in sources.items():
        key = NOT_IN_A_KEY.sub("_", name)
        if key in keys:
            raise BadInput(
                where, "chat_template", f"the names {name[:40]!r} and {keys[key][:40]!r}", "one name for one key"
            )
        keys[key] = name
        template = ChatTemplate(source, where)
        for token, text in tokenizer.special_texts.items():
            if ours.special_texts.get(token) != text and template.names(token):
                raise BadInput(
                    where, "chat_template", f"one that reads {token}", "bos_token, eos_token, unk_token and pad_token"
                )
    named = {key: sources[name] for key, name in keys.items()}
    found: dict[str, Any] = {f"{TEMPLATE_KEY}.{key}": source for key, source in named.items() if key != DEFAULT}
    if DEFAULT in named:
        found[TEMPLATE_KEY] = named[DEFAULT]
    more = sorted(named.keys() - {DEFAULT})
    return {**found, NAMES_KEY: more} if more else found
