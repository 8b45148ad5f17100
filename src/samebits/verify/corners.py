"""Rows that every run plays: sizes that drawing reaches too rarely, because they are single or cost too much."""

from __future__ import annotations

_MORE_THAN_A_GRID = "T=65537,N=1,K=32"  # 65,535 is the limit of a grid's second and third axes
_DENSE = tuple(f"K={k},tail=16,weight={f},weights=normal" for k in (32, 64, 96) for f in ("f16", "bf16"))
_PAGES = "B=2,length=5,spread=even,heads=1"  # at the pool's end
_MANY_PAGES = f"{_PAGES},pool=1048580,page_size=1,head=1"  # ids of more than 20 bits
_FAR_CELLS = f"{_PAGES},pool=2060,page_size=256,head=32,k=f16,v=f16"  # offsets of more than 24 bits

CORNERS: dict[str, tuple[str, ...]] = {
    "gemm": (*_DENSE, _MORE_THAN_A_GRID),
    "gemm_q8": (f"{_MORE_THAN_A_GRID},weight=q8_0",),
    "gemm_silu_q8": ("T=65537,H=32,K=32,weight=q8_0",),
    "grouped_gemm": (f"{_MORE_THAN_A_GRID},E=1,S=1", f"{_MORE_THAN_A_GRID},E=2,S=2,weight=q8_0"),
    "head_gemm": (*_DENSE, f"{_MORE_THAN_A_GRID},H=1"),
    "expert_gemm": (*_DENSE, f"{_MORE_THAN_A_GRID},R=1,E=2"),
    "expert_gemm_q8": (f"{_MORE_THAN_A_GRID},R=1,E=2,weight=q8_0",),
    "expert_gate_q8": ("T=65537,R=1,E=2,H=32,K=32,weight=q8_0",),
    "rope": ("T=65537,H=1,D=4",),
    "split_heads": ("T=65537,H=2,D=2",),
    "merge_heads": ("T=65537,H=2,D=2",),
    "merge_state": ("T=65537,H=1,D=2",),
    "copy_slots": ("slots=3,width=524288,copies=1,axes=2",),
    "copy_kv_pages": (_MANY_PAGES, f"{_FAR_CELLS},kind=mla"),
    "append_paged_kv_cache": (_MANY_PAGES, f"{_FAR_CELLS},kind=mla"),
    "rope_and_append": (f"{_FAR_CELLS},kind=mla",),
    "rope_both_and_append": (_FAR_CELLS,),
    "paged_attention": (_MANY_PAGES, _FAR_CELLS),
}
