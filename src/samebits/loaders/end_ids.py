"""The ids at which the model of a folder ends an answer, as transformers finds them."""

from __future__ import annotations

from pathlib import Path

from samebits.loaders.fields import Fields
from samebits.loaders.limits import MAX_VOCAB
from samebits.loaders.source import read_json

MAX_CONFIG_BYTES = 4 << 20
MAX_ENDS = 64


def stated_end_ids(folder: Path, num_ids: int = MAX_VOCAB, lacking: frozenset[int] = frozenset()) -> list[int]:
    """Return `eos_token_id`, a number or several: of generation_config.json, or of config.json where that is missing.

    Ids in `lacking` are left out: tokens that the model has no row for. Raise BadInput for other ids from `num_ids` on.
    """
    fields = _file_of_ends(folder)
    stated = fields.get("eos_token_id")
    ids = stated if isinstance(stated, list) else [] if stated is None else [stated]
    if len(ids) > MAX_ENDS or any(type(i) is not int for i in ids):
        raise fields.fail("eos_token_id", stated, f"a token id, or at most {MAX_ENDS} of them")
    ids = [i for i in ids if i not in lacking]
    if (wrong := next((i for i in ids if not 0 <= i < num_ids), None)) is not None:
        raise fields.fail("eos_token_id", wrong, f"ids from 0 to {num_ids - 1}")
    return ids


def _file_of_ends(folder: Path) -> Fields:
    """Return the file that states the end ids; of a config.json the part that does, the whole model's or the text's."""
    for name in ("generation_config.json", "config.json"):
        if (path := folder / name).is_file():
            fields = Fields(read_json(path, MAX_CONFIG_BYTES, may_be_infinite=True), str(path))
            is_in_part = name == "config.json" and not fields.has("eos_token_id") and fields.has("text_config")
            return fields.mapping("text_config") if is_in_part else fields
    return Fields({}, str(folder))
