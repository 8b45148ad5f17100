"""The sizes of latent attention: heads whose keys and values are projections of one short row per token."""

from __future__ import annotations

from dataclasses import dataclass

from samebits.models.parts.keys import MAX_HEAD_SIZE, MAX_WIDTH, Source, whole

#                        GGUF                          Hugging Face        bounds             where it is absent
HF_KEYS = {
    "query_rank":  whole(None,                         "q_lora_rank",      1, MAX_WIDTH, 1536, may_be_off=True),
    "rank":        whole(None,                         "kv_lora_rank",     1, MAX_HEAD_SIZE, 512),
    "plain_size":  whole(None,                         "qk_nope_head_dim", 1, MAX_HEAD_SIZE, 128),
    "rotary_size": whole(None,                         "qk_rope_head_dim", 2, MAX_HEAD_SIZE, 64),
    "value_size":  whole(None,                         "v_head_dim",       1, MAX_HEAD_SIZE, 128),
}  # fmt: skip
GGUF_KEYS = {
    "query_rank":  whole("attention.q_lora_rank",      None,               1, MAX_WIDTH, None, may_be_off=True),
    "rank":        whole("attention.kv_lora_rank",     None,               1, MAX_HEAD_SIZE),
    "key_length":  whole("attention.key_length",       None,               1, MAX_HEAD_SIZE),
    "value_length": whole("attention.value_length",    None,               1, MAX_HEAD_SIZE),
    "key_size":    whole("attention.key_length_mla",   None,               1, MAX_HEAD_SIZE,
                         lambda known: known["key_length"]),
    "value_size":  whole("attention.value_length_mla", None,               1, MAX_HEAD_SIZE,
                         lambda known: known["value_length"]),
    "rotary_size": whole("rope.dimension_count",       None,               2, MAX_HEAD_SIZE),
}  # fmt: skip


@dataclass(frozen=True)
class Latent:
    """What a token leaves in the cache, and what heads make of it.

    query_rank   width that queries are brought down to before they are brought up to heads; None: in one product
    rank         elements of a token's row that keys and values are projections of
    rotary_size  further elements of the row: the rotated part of every head's key
    plain_size   of a head's key, without its rotated part
    value_size   of a head's value
    is_joint     a file stores the projections to keys and to values as one tensor, keys not yet transposed
    """

    query_rank: int | None
    rank: int
    rotary_size: int
    plain_size: int
    value_size: int
    is_joint: bool

    @property
    def row_size(self) -> int:
        """Elements of a token in the cache."""
        return self.rank + self.rotary_size

    @property
    def key_size(self) -> int:
        """Of a head's key, both parts."""
        return self.plain_size + self.rotary_size

    @property
    def has_one_query(self) -> bool:
        """Whether queries are one product of the residual stream."""
        return self.query_rank is None

    @property
    def has_low_query(self) -> bool:
        return self.query_rank is not None

    @property
    def is_split(self) -> bool:
        return not self.is_joint

    def dims(self) -> dict[str, int]:
        return {
            "QueryRank": self.query_rank or 0,
            "Rank": self.rank,
            "RowSize": self.row_size,
            "PlainSize": self.plain_size,
            "KeySize": self.key_size,
            "ValueSize": self.value_size,
        }


def read_latent(source: Source) -> Latent:
    """The sizes that a file states. GGUF's first files have lengths of heads where later ones have those of rows."""
    is_joint = not source.is_gguf or not source.has_tensor(".attn_k_b.weight")
    if not source.is_gguf:
        return Latent(**source.values(HF_KEYS), is_joint=is_joint)
    values = source.values(GGUF_KEYS)
    key_size, rotary_size = values["key_size"], values["rotary_size"]
    if rotary_size >= key_size:
        raise source.fail("rotary dimensions", rotary_size, f"less than the head size {key_size}")
    sizes = {name: values[name] for name in ("query_rank", "rank", "rotary_size", "value_size")}
    return Latent(**sizes, plain_size=key_size - rotary_size, is_joint=is_joint)
