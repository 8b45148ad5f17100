"""An estimate of the memory that a model's steps take on a GPU beside weights and caches."""

from __future__ import annotations

from samebits.backends.gpu.feeding import BUCKETS, bucket_of
from samebits.backends.interface import Workspace
from samebits.core.shapes import Sym, upper
from samebits.graph import Graph
from samebits.kernels.triton.attention.call import CUT_LEN
from samebits.passes.plan_memory import plan_memory

LOADED_BYTES = 256 << 20  # kernels, the allocator's rounding, and what torch and the driver take
FRAGMENTATION = 1.15  # memory that the allocator holds for values, over the values' bytes
SAMPLING_ROWS = 4  # float32 rows of the vocabulary that a draw takes: scores, candidates, a bias and counts
WORD_BYTES = 4
MAX_SPLIT_TOKENS = 16  # of a sequence, whose sums lie in scratch at once
POOLS = 2  # scratch of attention lies in the allocator's memory and in that of captured graphs


def gpu_workspace(graph: Graph) -> Workspace:
    """Return the memory of a model's largest step, of its captured graphs and of sampling."""
    specs = [value.spec for value in graph.inputs if value.name not in graph.kinds]
    limits = {d.name: d.limit for spec in specs for d in spec.shape if isinstance(d, Sym)}
    planned = plan_memory(graph).total_bytes
    if "T" not in limits:
        return Workspace(planned)
    most_tokens, vocab_size = limits["T"], upper(graph.outputs[0].spec.shape[-1])
    hidden_size = upper(graph.outputs[1].spec.shape[-1])
    largest = bucket_of(most_tokens) or BUCKETS[-1]
    captured_rows = sum(bucket for bucket in BUCKETS if bucket <= largest)
    captured = planned * largest // most_tokens + captured_rows * (vocab_size + hidden_size) * WORD_BYTES
    rows = min(limits.get("B", 1), most_tokens)
    sampling = rows * vocab_size * SAMPLING_ROWS * WORD_BYTES
    num_bytes = int(FRAGMENTATION * (planned + captured + sampling)) + LOADED_BYTES
    split_tokens = min(MAX_SPLIT_TOKENS, -(-largest // rows))
    scratch = max((_scratch_per_entry(graph, n, split_tokens) for n in range(len(graph.nodes))), default=0)
    return Workspace(num_bytes, POOLS * scratch + 3 * WORD_BYTES)  # an entry travels through two host buffers too


def _scratch_per_entry(graph: Graph, number: int, split_tokens: int) -> int:
    """Return the scratch bytes of an attention node for each page in its tables: scores, and sums of each cut."""
    node = graph.nodes[number]
    if not {"q", "k_cache", "kv_indptr"} <= node.inputs.keys():
        return 0
    _, heads, head_size = (upper(d) for d in node.inputs["q"].spec.shape)
    page_size = upper(node.inputs["k_cache"].spec.shape[1])
    v_dim = node.attrs.get("v_dim") or head_size
    scores = 2 * heads * WORD_BYTES  # heads of a program are padded to a power of two
    sums = heads * (max(v_dim, head_size) + 2) * split_tokens * WORD_BYTES / CUT_LEN
    return int(page_size * (scores + sums))
