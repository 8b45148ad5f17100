"""Sizes between powers of two, and beyond what few bits count: defects that round and wrap. See planted_sizes.py."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from planted import Results, stored
from planted_base import Arguments, Defect, Scene, shown_by
from planted_paged import attention_cache
from planted_scenes import append, attention, call, floats, ints, product, rows_of

from samebits.backends.interface import Backend
from samebits.core.format import HostTensor
from samebits.core.tiers import Tier
from samebits.verify.far import run_far


def rounds_up(size: int) -> bool:
    """Whether a tile of the next power of two holds a multiple of 16 with columns to spare."""
    return 32 < size < 256 and size % 16 == 0 and size & (size - 1) != 0


class MaskOfOddDepthsAlone(Defect):
    """Masks the tail of a tile that is rounded up to a power of two only if K is no multiple of 16."""

    ops = ("gemm", "head_gemm", "expert_gemm")
    witness = shown_by(product, 2, 3, 80)
    twin = shown_by(product, 2, 3, 81)

    def change(self, a: Arguments) -> Arguments:
        x = a["x"].copy()
        if rounds_up(x.shape[-1]):
            x[..., -1:] = 0
        return {"x": x}


class NormOfARoundedRow(Defect):
    """Divides by the width of a tile that is rounded up to a power of two where a row is a multiple of 16."""

    ops = ("rms_norm",)
    witness = shown_by(call, "rms_norm", x=floats(2, 112))
    twin = shown_by(call, "rms_norm", x=floats(2, 113))

    def spoil(self, a: Arguments, results: Results) -> None:
        if rounds_up(results[0].shape[-1]):
            rows_of(results[0])[:] *= results[0].dtype.type(1.25)


class HalfOfAnOddQuad(Defect):
    """Loads a head of 4 mod 8 elements in vectors of 8, and leaves out the last 4."""

    ops = ("paged_attention",)
    witness = shown_by(attention, (5,), head=20)
    twin = shown_by(attention, (5,), head=24)

    def change(self, a: Arguments) -> Arguments:
        q = a["q"].copy()
        if q.shape[-1] % 8 == 4:
            q[..., -4:] = 0
        return {"q": q}


class TurnsWholeVectors(Defect):
    """Rotates heads in vectors of 8: the last 4 elements of a head of 4 mod 8 stay as they are."""

    ops = ("rope",)
    witness = shown_by(call, "rope", x=floats(1, 1, 12), pos_ids=ints(5), table=floats(8, 6, 2, seed=1))
    twin = shown_by(call, "rope", x=floats(1, 1, 16), pos_ids=ints(5), table=floats(8, 8, 2, seed=1))

    def spoil(self, a: Arguments, results: Results) -> None:
        if results[0].shape[-1] % 8 == 4 and results[0].shape[-1] > 4:
            results[0][..., -4:] = a["x"][..., -4:]


class DepthIn16Bits(Defect):
    """Keeps a column's number in 16 bits: from column 65,536 on, x is read from its beginning again."""

    ops = ("gemm",)
    witness = shown_by(product, 1, 1, 65568, "q8_0")
    twin = shown_by(product, 1, 1, 65536, "q8_0")

    def change(self, a: Arguments) -> Arguments:
        return {"x": a["x"][:, np.arange(a["x"].shape[1]) & 0xFFFF]}


class NothingSummedNothingWritten(Defect):
    """Starts a sum with the first product, and leaves results as they were if there is none."""

    ops = ("gemm", "gemm_q8", "head_gemm")
    witness = shown_by(call, "gemm", x=floats(2, 0), weight=floats(3, 0))
    twin = shown_by(call, "gemm", x=floats(2, 1), weight=floats(3, 1))

    def spoil(self, a: Arguments, results: Results) -> None:
        if math.prod((a["x"] if "x" in a else a["codes"]).shape[1:]) == 0:
            results[0][...] = 7


class ProductsOf65535Tokens(Defect):
    """Gives every token a block of the grid's second dimension, which has at most 65,535."""

    ops = ("gemm", "gemm_q8", "head_gemm", "expert_gemm")
    witness = shown_by(product, 65536, 1, 1)
    twin = shown_by(product, 65535, 1, 1)

    def spoil(self, a: Arguments, results: Results) -> None:
        results[0][65535:] = 0


def copied(width: int) -> Scene:
    return call("copy_slots", state=floats(2, width), sources=ints(0), targets=ints(1))


class SlotsOfAFewElements(Defect):
    """Copies at most 2^18 elements of a slot."""

    ops = ("copy_slots",)
    witness = shown_by(copied, (1 << 18) + 1)
    twin = shown_by(copied, 1 << 18)

    def kernel(self, op_name: str, arguments: Arguments) -> Results:
        state = arguments["state"]
        rows, sources = state.reshape(len(state), -1), arguments["sources"]
        rows[arguments["targets"], : 1 << 18] = rows[sources, : 1 << 18]
        return (state,)


class PageIdsIn20Bits(Defect):
    """Keeps page ids in 20 bits, beside flags."""

    ops = ("paged_attention",)
    witness = shown_by(attention, (2,), page_size=1, head=1, pages=[[3, (1 << 20) + 2]])
    twin = shown_by(attention, (2,), page_size=1, head=1, pages=[[3, (1 << 20) - 1]])

    def change(self, a: Arguments) -> Arguments:
        return {"kv_indices": a["kv_indices"] & 0xFFFFF} if "kv_indices" in a else {}


def far_append(num_pages: int) -> Scene:
    """A token into the last of many pages of 16,384 elements."""
    table = {"kv_indptr": ints(0, 1), "kv_indices": ints(num_pages - 1), "kv_last_page_len": ints(1)}
    cache = {name: np.zeros((num_pages, 16, 16, n), np.float32) for name, n in (("k_cache", 64), ("v_cache", 1))}
    new = {"key": floats(1, 16, 64, seed=3), "value": floats(1, 16, 1, seed=4)}
    return call("append_paged_kv_cache", **table, **cache, **new, batch_indices=ints(0), positions=ints(0))


class OffsetsIn24Bits(Defect):
    """Computes a page's offset in float32, whose whole numbers end at 2^24: pages beyond are not written."""

    ops = ("append_paged_kv_cache", "rope_and_append")
    bits = 24
    witness = shown_by(far_append, 1025)
    twin = shown_by(far_append, 1024)

    def kernel(self, op_name: str, arguments: Arguments) -> Results:
        caches = [stored(arguments[name]) for name in ("k_cache", "v_cache") if name in arguments]
        beyond = [pages[(1 << self.bits) // math.prod(pages.shape[1:]) :] for pages in caches]
        before = [pages.copy() for pages in beyond]
        results = super().kernel(op_name, arguments)
        for pages, old in zip(beyond, before, strict=True):
            pages[:] = old
        return results


def far_keys(page: int) -> Scene:
    """A query at three keys of a page of 2^18 elements, all others of which are zero."""
    table = {"kv_indptr": ints(0, 1), "kv_indices": ints(page), "kv_last_page_len": ints(3)}
    cache = {"k_cache": np.zeros((page + 1, 512, 1, 512), np.float32), "v_cache": floats(page + 1, 512, 1, 1, seed=1)}
    cache["k_cache"][page, :3] = floats(3, 1, 512, seed=2)
    return call("paged_attention", q=floats(1, 1, 512), qo_indptr=ints(0, 1), v_dim=1, **table, **cache)


class KeysOfFarPages(Defect):
    """Computes a page's offset in 24 bits: keys beyond are read from the beginning of the cache again."""

    ops = ("paged_attention",)
    witness = shown_by(far_keys, 64)
    twin = shown_by(far_keys, 63)

    def change(self, a: Arguments) -> Arguments:
        pages = attention_cache(a).k
        per_page = math.prod(pages.shape[1:])
        wrapped = (a["kv_indices"].astype(np.int64) * per_page % (1 << 24)) // per_page if "kv_indices" in a else None
        return {} if wrapped is None else {"kv_indices": wrapped.astype(np.int32)}


@dataclass(frozen=True)
class FarScene(Scene):
    """A call whose cache lies beyond 2^31 elements of the memory that it is a part of."""

    def play(self, backend: Backend) -> list[HostTensor]:
        node = self.graph.nodes[0]
        return list(run_far(backend, node.op, {**self.runs[0], **node.attrs}, Tier.PORTABLE))


def very_far_append() -> Scene:
    scene = append([4])
    return FarScene(scene.graph, scene.runs)


class OffsetsIn31Bits(OffsetsIn24Bits):
    """Computes a page's offset in 31 bits: pages beyond are not written."""

    bits = 31
    witness = shown_by(very_far_append)
    twin = shown_by(append, [4])
