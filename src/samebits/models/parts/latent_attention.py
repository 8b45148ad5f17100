"""Latent attention in its absorbed form: queries come into the space of the cache, results out of it.

A key of head h is K_h c and its value V_h c, c a token's row in the cache. As q . (K_h c) = (K_h^T q) . c, no key and
no value is ever made: all heads read the rows as they lie, for a prompt and for one token alike.
"""

from __future__ import annotations

import math

from samebits.core.errors import BadInput
from samebits.graph import Value
from samebits.models.architecture import Rows, Weight
from samebits.models.parts.builder import ModelParts
from samebits.models.parts.latent import Latent
from samebits.models.parts.rope import ROPE_TABLE
from samebits.models.parts.state import Paged
from samebits.ops.record import FLOATS

PARTS = ("PlainSize", "ValueSize")  # of a head's rows, where one tensor has keys and values
#            ours              shape                 GGUF              Hugging Face
TENSORS = (
    Weight("attn.q",         "A*KeySize H",        "attn_q",         "self_attn.q_proj",   when="latent.has_one_query"),
    Weight("attn.q_a",       "QueryRank H",        "attn_q_a",       "self_attn.q_a_proj", when="latent.has_low_query"),
    Weight("attn.q_a_norm",  "QueryRank",          "attn_q_a_norm",  "self_attn.q_a_layernorm",
           when="latent.has_low_query"),
    Weight("attn.q_b",       "A*KeySize QueryRank", "attn_q_b",      "self_attn.q_b_proj", when="latent.has_low_query"),
    Weight("attn.kv_a",      "RowSize H",          "attn_kv_a_mqa",  "self_attn.kv_a_proj_with_mqa"),
    Weight("attn.kv_a_norm", "Rank",               "attn_kv_a_norm", "self_attn.kv_a_layernorm"),
    Weight("attn.k_b",       "A Rank PlainSize",   "attn_k_b",       "", when="latent.is_split"),
    Weight("attn.v_b",       "A ValueSize Rank",   "attn_v_b",       "", when="latent.is_split"),
    Weight("attn.k_b",       "A Rank PlainSize",   "attn_kv_b",      "self_attn.kv_b_proj", when="latent.is_joint",
           rows=Rows(PARTS, (0,), groups="A"), gguf_shape="A*PlainSize Rank", hf_shape="A*PlainSize Rank",
           is_transposed=True),
    Weight("attn.v_b",       "A ValueSize Rank",   "attn_kv_b",      "self_attn.kv_b_proj", when="latent.is_joint",
           rows=Rows(PARTS, (1,), groups="A"), gguf_shape="A*ValueSize Rank", hf_shape="A*ValueSize Rank"),
    Weight("attn.o",         "H A*ValueSize",      "attn_output",    "self_attn.o_proj"),
)  # fmt: skip


def latent_attention(m: ModelParts, x: Value, layer: int) -> Value:
    """One layer."""
    b, c, name = m.b, sizes_of(m), f"layers.{layer}.attn"
    state = Paged(((c.row_size,),))
    if m.limits.k_format not in FLOATS:
        raise BadInput("model", "k_format", m.limits.k_format, f"{', '.join(FLOATS)}: rows of a latent cache are plain")
    cache, _ = m.state(f"layers.{layer}", state)
    pages = m.page_table(state)
    places = {n: m.step[n] for n in ("batch_indices", "positions")}
    cache = b.append_paged_kv_cache(_row(m, x, layer), k_cache=cache, **places, **pages)
    m.written(cache)
    seen = b.paged_attention(
        _queries(m, x, layer),
        cache,
        m.step["qo_indptr"],
        v_dim=c.rank,
        sm_scale=1.0 / math.sqrt(m.config.query_scalar),
        **pages,
    )
    return m.linear(b.merge_heads(b.head_gemm(seen, m.weight(f"{name}.v_b"))), f"{name}.o")


def sizes_of(m: ModelParts) -> Latent:
    """The model's; BadInput for a model without latent attention."""
    if m.config.latent is None:
        raise BadInput("model", "attention", "no latent sizes", "those of latent attention")
    return m.config.latent


def _row(m: ModelParts, x: Value, layer: int) -> Value:
    """What a token leaves in the cache [T, 1, RowSize]: its normed row, then the rotated part of keys."""
    b, c, name = m.b, sizes_of(m), f"layers.{layer}.attn"
    both = m.linear(x, f"{name}.kv_a")
    row = m.norm(b.slice_columns(both, start=0, stop=c.rank), f"{name}.kv_a_norm")
    turned = _turned(m, b.split_heads(b.slice_columns(both, start=c.rank, stop=c.row_size), heads=1))
    return b.split_heads(b.concat_columns(row, b.merge_heads(turned)), heads=1)


def _queries(m: ModelParts, x: Value, layer: int) -> Value:
    """Queries [T, heads, RowSize] as rows of the cache meet them."""
    b, c, name = m.b, sizes_of(m), f"layers.{layer}.attn"
    if c.query_rank is None:
        flat = m.linear(x, f"{name}.q")
    else:
        flat = m.linear(m.norm(m.linear(x, f"{name}.q_a"), f"{name}.q_a_norm"), f"{name}.q_b")
    q = b.split_heads(flat, heads=m.config.num_heads)
    plain = b.head_gemm(b.slice_columns(q, start=0, stop=c.plain_size), m.weight(f"{name}.k_b"))
    return b.concat_columns(plain, _turned(m, b.slice_columns(q, start=c.plain_size, stop=c.key_size)))


def _turned(m: ModelParts, heads: Value) -> Value:
    is_interleaved = m.config.rope_is_interleaved
    return m.b.rope(heads, m.step["positions"], m.rope_tables[ROPE_TABLE], interleave=is_interleaved)
