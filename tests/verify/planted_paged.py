"""Backends with one defect each in an op on paged caches. See planted.py."""

from __future__ import annotations

from typing import Any

import numpy as np
from planted import F, Planted, Results, defined, stored

from samebits.core.format import HostTensor, copy_tensor
from samebits.core.numerics.rounding import widen
from samebits.ops.paged import Cache, cache_views, page_table


class PlantedPaged(Planted):
    """The definition on a changed call. A cache in `arguments` is a copy for attention, the cache itself for append."""

    ops = ("paged_attention",)

    def change(self, arguments: dict[str, Any]) -> dict[str, Any]:
        raise NotImplementedError

    def kernel(self, op_name: str, arguments: dict[str, Any]) -> Results:
        if op_name == "paged_attention":
            caches = {n: copy_tensor(arguments[n]) for n in ("k_cache", "v_cache") if n in arguments}
            arguments = {**arguments, **caches}
        return defined(op_name, {**arguments, **self.change(arguments)})


def attention_cache(arguments: dict[str, Any]) -> Cache:
    """Logical views [page, slot, head, element]."""
    head = arguments["q"].shape[-1]
    v_dim = arguments["v_dim"] or head
    return cache_views("planted", arguments["k_cache"], arguments.get("v_cache"), arguments["layout"], head, v_dim)


def page_size(arguments: dict[str, Any]) -> int:
    """Of a cache with a table; heads and slots are exchanged in HND."""
    slots = {3: 1, 4: 1, 5: 2}[arguments["k_cache"].ndim] + (arguments["layout"] == "HND")
    return int(arguments["k_cache"].shape[slots])


class TableIgnored(PlantedPaged):
    """Reads pages 0, 1, 2 ... whatever the table says."""

    def change(self, arguments: dict[str, Any]) -> dict[str, Any]:
        table = arguments.get("kv_indices")
        return {} if table is None else {"kv_indices": np.arange(len(table), dtype=np.int32)}


class OddPagesRounded(PlantedPaged):
    """The last bit of a sequence's results depends on where its first page lies."""

    def kernel(self, op_name: str, arguments: dict[str, Any]) -> Results:
        (out, *rest) = defined(op_name, arguments)
        first, last = arguments.get("qo_indptr"), arguments.get("kv_indptr")
        for sequence in range(0 if last is None or first is None else len(last) - 1):
            rows = slice(first[sequence], first[sequence + 1])
            if last[sequence + 1] > last[sequence] and arguments["kv_indices"][last[sequence]] % 2:
                out[rows] = np.nextafter(out[rows], F(np.inf))
        return (out, *rest)


class TableIgnoredByAppend(TableIgnored):
    ops = ("append_paged_kv_cache",)


class PageEdgeRead(PlantedPaged):
    """The last slot of a page is taken from the slot before."""

    def change(self, arguments: dict[str, Any]) -> dict[str, Any]:
        cache = attention_cache(arguments)
        for view in {id(stored(v)): stored(v) for v in (cache.k, cache.v)}.values():
            view[:, -1] = view[:, -2]
        return {}


class PageEdgeAppend(PlantedPaged):
    """A token for the last slot of a page is dropped."""

    ops = ("append_paged_kv_cache",)

    def change(self, arguments: dict[str, Any]) -> dict[str, Any]:
        slots = arguments["positions"] % page_size(arguments)
        stays = slots != page_size(arguments) - 1
        per_token = [n for n in ("key", "value", "batch_indices", "positions") if n in arguments]
        return {name: arguments[name][stays] for name in per_token}


class LastPageLengthIgnored(PlantedPaged):
    """Attends to the whole of the last page."""

    def change(self, arguments: dict[str, Any]) -> dict[str, Any]:
        last = arguments["kv_last_page_len"]
        return {"kv_last_page_len": np.where(last > 0, page_size(arguments), 0).astype(np.int32)}


class SwappedInHnd(PlantedPaged):
    """Keys and values exchanged, in one layout only."""

    def change(self, arguments: dict[str, Any]) -> dict[str, Any]:
        if arguments["layout"] == "NHD":
            return {}
        if arguments.get("v_cache") is not None:
            return {"k_cache": arguments["v_cache"], "v_cache": arguments["k_cache"]}
        k_cache = arguments["k_cache"]
        stored(k_cache)[:] = stored(k_cache)[:, ::-1].copy()
        return {}


class SwappedInUnifiedAppend(PlantedPaged):
    """The same in a unified cache, on the way in."""

    ops = ("append_paged_kv_cache",)

    def change(self, arguments: dict[str, Any]) -> dict[str, Any]:
        is_unified = arguments["k_cache"].ndim == 5
        return {"key": arguments["value"], "value": arguments["key"]} if is_unified else {}


class CausalTopLeft(PlantedPaged):
    """Query i sees positions 0 .. i, as if the prompt began with it."""

    def change(self, arguments: dict[str, Any]) -> dict[str, Any]:
        if not arguments["causal"]:
            return {}
        cache = attention_cache(arguments)
        tables = (arguments.get(n) for n in ("kv_indptr", "kv_indices", "kv_last_page_len"))
        lengths = page_table("planted", *tables, cache.num_pages, cache.page_size).lengths
        masks = [
            np.tri(count, length, dtype=bool).ravel()
            for count, length in zip(np.diff(arguments["qo_indptr"]), lengths, strict=True)
        ]
        return {"causal": False, "custom_mask": np.concatenate(masks)}


class ContiguousShift(PlantedPaged):
    """Without a table, the newest token is not seen."""

    def change(self, arguments: dict[str, Any]) -> dict[str, Any]:
        if arguments.get("kv_indices") is not None:
            return {}
        cache = attention_cache(arguments)
        for b, length in enumerate(arguments["kv_last_page_len"]):
            for view in (stored(cache.k), stored(cache.v)):
                view[b, length - 1] = view[b, max(length - 2, 0)]
        return {}


class MaskedNan(Planted):
    """Masked slots of the last page are multiplied by 0 instead of left out."""

    ops = ("paged_attention",)

    def kernel(self, op_name: str, arguments: dict[str, Any]) -> Results:
        out, *rest = defined(op_name, arguments)
        cache = attention_cache(arguments)
        group = out.shape[1] // cache.k.shape[2]
        for b, last_len in enumerate(arguments["kv_last_page_len"]):
            rows = slice(*arguments["qo_indptr"][b : b + 2])
            page = arguments["kv_indices"][arguments["kv_indptr"][b + 1] - 1]
            masked: HostTensor = cache.v[page, last_len:]
            zeros = F(0) * widen(np.asarray(masked)).sum(axis=0, dtype=F)
            out[rows] += np.repeat(zeros, group, axis=0)
        return (out, *rest)
